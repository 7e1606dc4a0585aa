package devstack

import (
	"runtime"
	"syscall"
	"time"
)

const prSetTimerslack = 29 // prctl(2)

// withTimerSlack calls start, which forks a child whose timers the kernel may let end so much later, together with others.
func withTimerSlack(slack time.Duration, start func() error) error {
	runtime.LockOSThread() // a child has the slack of the thread that forks it
	defer runtime.UnlockOSThread()
	set := func(nanoseconds int64) {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerslack, uintptr(nanoseconds), 0) // without it, timers are exact
	}
	set(slack.Nanoseconds())
	defer set(0) // the default
	return start()
}
