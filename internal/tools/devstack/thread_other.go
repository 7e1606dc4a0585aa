//go:build !linux

package devstack

import "errors"

// PauseThread stops one thread of the process; see the one for Linux.
func (p *Process) PauseThread(string) (resume func(), err error) {
	return nil, errors.New("a single thread can be stopped on Linux only")
}
