package devstack

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// childrenOf returns the processes whose parent is pid, from /proc.
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

// lives reports whether a process exists and is no zombie. It need not be a child of this one.
func lives(pid int) bool {
	state, _ := statusOf(pid)
	return state != "" && state != "Z"
}

// statusOf returns the state and the parent, which are the first fields behind the command's name. The name is in
// parentheses and may have any characters (proc_pid_stat(5)). The state is empty for a process that has ended.
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
