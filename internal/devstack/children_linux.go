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
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if parentIn(stat) == pid {
			children = append(children, id)
		}
	}
	return children
}

// parentIn reads the second field after the command's name, which stands in
// parentheses and may hold anything (proc_pid_stat(5)).
func parentIn(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(fields[1]))
	return ppid
}
