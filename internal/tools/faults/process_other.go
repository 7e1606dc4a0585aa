//go:build !linux

package faults

import "syscall"

// endsWithUs cannot be had here: a killed suite leaves its replicas behind.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
