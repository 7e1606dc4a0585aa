//go:build !linux

package devstack

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childrenOf returns the processes whose parent is pid, from ps.
func childrenOf(pid int) []int {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output() // without an answer: no children
	var children []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(fields[0])
			children = append(children, child)
		}
	}
	return children
}

// lives reports whether a process exists. It need not be a child of this one; process 1 reaps orphans.
func lives(pid int) bool { return syscall.Kill(pid, 0) == nil }
