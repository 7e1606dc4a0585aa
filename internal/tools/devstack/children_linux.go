package devstack

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// childrenOf are the processes whose parent is pid: /proc knows.
func childrenOf(pid int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	var children []int
	for _, file := range files {
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if _, parent := statusOf(id); parent == pid {
			children = append(children, id)
		}
	}
	return children
}

// lives tells whether a process that need not be our child exists and is no zombie.
func lives(pid int) bool {
	state, _ := statusOf(pid)
	return state != "" && state != "Z"
}

// statusOf reads the state and the parent: the first fields after the command's
// name, which stands in parentheses and may hold anything (proc_pid_stat(5)). It is
// empty for a process that has ended.
func statusOf(pid int) (state string, parent int) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return string(fields[0]), parent
}
