package faults

import "syscall"

// endsWithUs makes a replica end when this process ends, even by SIGKILL.
func endsWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
