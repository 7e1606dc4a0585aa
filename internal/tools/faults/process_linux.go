package faults

import "syscall"

// endsWithUs lets a replica end when this process does, however that ends.
func endsWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
