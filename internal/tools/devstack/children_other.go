//go:build !linux

package devstack

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childrenOf are the processes whose parent is pid, as ps tells.
func childrenOf(pid int) []int {
	out, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output() // nothing known: no children
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

// lives tells whether a process that need not be our child exists; process 1 reaps
// what others leave.
func lives(pid int) bool { return syscall.Kill(pid, 0) == nil }
