package main

import "syscall"

// endWithParent makes a child end when this process dies, and keeps the terminal's Ctrl-C from it.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
