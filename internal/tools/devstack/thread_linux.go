package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// commLimit is what Linux keeps of a thread's name.
const commLimit = 15

// PauseThread stops one thread of the process, by its name, while the others go on, until resume is called. It stops it
// where it waits for something, so that it holds up nobody who needs all threads to come to a halt (as Java's collector).
// It traces the thread, so the process must not be traced by another one; without the right to, it is an error.
func (p *Process) PauseThread(name string) (resume func(), err error) {
	pid := p.PID()
	tid, err := threadNamed(pid, name)
	if err != nil {
		return nil, err
	}
	stopped, done, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() { // whoever traces a thread is a thread, and the same one has to let it go
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := stopWaiting(pid, tid)
		stopped <- err
		if err == nil {
			<-done
			_ = syscall.PtraceDetach(tid)
		}
	}()
	if err := <-stopped; err != nil {
		return nil, fmt.Errorf("stopping thread %s of %s: %w", name, p.spec.name, err)
	}
	return func() {
		close(done)
		<-ended
	}, nil
}

func threadNamed(pid int, name string) (int, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range names {
		comm, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(comm)) == name[:min(len(name), commLimit)] {
			var tid int
			_, err := fmt.Sscan(filepath.Base(filepath.Dir(path)), &tid)
			return tid, err
		}
	}
	return 0, fmt.Errorf("process %d has no thread %s", pid, name)
}

// stopWaiting stops the thread within a system call.
func stopWaiting(pid, tid int) error {
	for range 1000 {
		if err := syscall.PtraceAttach(tid); err != nil {
			return err
		}
		if _, err := syscall.Wait4(tid, nil, syscall.WALL, nil); err != nil {
			return err
		}
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
		if err == nil && !strings.HasPrefix(string(call), "-1") && !strings.HasPrefix(string(call), "running") {
			return nil
		}
		if err := syscall.PtraceDetach(tid); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("it does not wait for anything")
}
