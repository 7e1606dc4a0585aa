//go:build !linux

package faults

import "syscall"

// endsWithUs is not possible on this system, so a killed suite leaves its replicas behind.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
