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

// commLimit is the length to which Linux cuts a thread's name.
const commLimit = 15

// PauseThread stops one thread of the process, by its name, until resume is called; the others go on. It stops the
// thread in a system call, so that it does not hold up Java's collector, which needs all threads to halt. It traces the
// thread, so no other process may trace this one; without the permission it returns an error.
func (p *Process) PauseThread(name string) (resume func(), err error) {
	pid := p.PID()
	tid, err := threadNamed(pid, name)
	if err != nil {
		return nil, err
	}
	stopped, done, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() { // a thread has to be released by the thread that traces it
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
