//go:build unix

package verify

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of all threads of this process until now.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
