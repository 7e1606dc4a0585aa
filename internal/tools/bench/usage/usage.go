// Package usage reads the CPU time of processes from /proc, which only Linux has.
package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on all platforms that Go runs on.
const tick = 10 * time.Millisecond

// Process returns the CPU time of a process with all its threads, to 10 ms. It does not count other processes that it started.
func Process(pid int) (time.Duration, error) {
	own, _, err := times(pid)
	return own, err
}

// Tree returns the CPU time of a process, of its children, and of the children that have ended. It is for PostgreSQL: the time of
// children is exact to the nanosecond as long as they live, because each has one thread. They have no children themselves.
func Tree(pid int) (time.Duration, error) {
	own, ended, err := times(pid)
	if err != nil {
		return 0, err
	}
	sum := own + ended
	children, err := children(pid)
	if err != nil {
		return 0, err
	}
	for _, child := range children {
		// A child that has ended meanwhile is missing; its parent's sum has it the next time.
		if t, err := running(child); err == nil {
			sum += t
		}
	}
	return sum, nil
}

// times returns the CPU time of a process, and that of its children that have ended.
func times(pid int) (own, ended time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) //nolint:gosec // of a number
	if err != nil {
		return 0, 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	// The name, in parentheses, may have spaces. The fields behind it begin with the third; 14 to 17 are utime, stime, cutime, cstime.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var n [4]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return time.Duration(n[0]+n[1]) * tick, time.Duration(n[2]+n[3]) * tick, nil
}

// running returns the time that the main thread of a process has run.
func running(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)) //nolint:gosec // of a number
	if err != nil {
		return 0, err
	}
	ns, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseInt(ns, 10, 64)
	return time.Duration(n), err
}

// children returns the living children that any thread of a process has started.
func children(pid int) (list []int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // as found
		if err != nil {
			return nil, fmt.Errorf("reading the children of a process: %w", err)
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			list = append(list, child)
		}
	}
	return list, nil
}
