package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoversLimit bounds the wait of a start for processes of a former run whose parent was killed. Their guards need at
// most 12 s.
const leftoversLimit = 30 * time.Second

// stateDir is Options.Dir, locked by one run at a time.
type stateDir struct {
	path     string
	run      *os.File // locked by the run itself
	children *os.File // locked, shared, by the run and by every guard
}

// openStateDir makes and locks the directory. It waits for processes that a killed run has left, and refuses a
// directory that a living run uses.
func openStateDir(ctx context.Context, path string, progress func(string)) (*stateDir, error) {
	if err := os.MkdirAll(filepath.Join(path, "log"), 0o755); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	run, err := os.OpenFile(filepath.Join(path, "run.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the state directory's lock: %w", err)
	}
	if err := tryLock(run, syscall.LOCK_EX); err != nil {
		defer run.Close()
		return nil, inUse(path, run, err)
	}
	d := &stateDir{path: path, run: run}
	if err := d.noteRun(); err != nil {
		d.close()
		return nil, err
	}
	if err := d.awaitLeftovers(ctx, progress); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func inUse(path string, run *os.File, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	pid := make([]byte, 16)
	n, _ := run.ReadAt(pid, 0) // only for the message
	return fmt.Errorf("%s is in use by another run (process %s): stop it, or take another directory",
		path, strings.TrimSpace(string(pid[:n])))
}

func (d *stateDir) noteRun() error {
	if err := d.run.Truncate(0); err != nil {
		return fmt.Errorf("noting the run: %w", err)
	}
	if _, err := d.run.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("noting the run: %w", err)
	}
	return nil
}

// awaitLeftovers takes the children's lock exclusively, so that no guard of a former run is left, and then shares it
// with the guards to come.
func (d *stateDir) awaitLeftovers(ctx context.Context, progress func(string)) error {
	f, err := os.OpenFile(filepath.Join(d.path, "children.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the children's lock: %w", err)
	}
	d.children = f
	ctx, cancel := context.WithTimeout(ctx, leftoversLimit)
	defer cancel()
	waiting := func() { progress("waiting for the processes of a former run to end") }
	if err := awaitLock(ctx, f, syscall.LOCK_EX, waiting); err != nil {
		return fmt.Errorf("processes of a former run in %s do not end: %w", d.path, err)
	}
	return tryLock(f, syscall.LOCK_SH)
}

func (d *stateDir) close() {
	for _, f := range []*os.File{d.children, d.run} {
		if f != nil {
			_ = f.Close() // releases the lock
		}
	}
}

func (d *stateDir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// log returns the path of a new log file of this run.
func (d *stateDir) log(name string) string {
	path := d.join("log", name+".log")
	_ = os.Remove(path) // missing, or then it grows
	return path
}

func tryLock(f *os.File, how int) error {
	return syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
}

// awaitLock takes the lock as soon as it is free; it calls waiting once if it is not.
func awaitLock(ctx context.Context, f *os.File, how int, waiting func()) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		err := tryLock(f, how)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// readJSON leaves v as it is when the file is missing.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// writeFile replaces the file as a whole or not at all.
func writeFile(path string, data []byte, mode os.FileMode) error {
	next := path + ".new"
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
