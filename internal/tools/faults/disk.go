package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// smallDisk is a file system in memory, whose size can be changed while it is in use. It is as large as the largest
// broker's store may become. Only root can make one.
type smallDisk struct{ path string }

const (
	diskSize   = 8 << 30
	ballast    = 2 << 30         // so that a few per cent of a young store are more than a broker writes before it looks at its disk
	diskSource = "txsvc-faults-" // and the process id, so that a later run recognizes stale ones
)

// mountSmallDisk makes one at the path.
func mountSmallDisk(ctx context.Context, path string) (*smallDisk, error) {
	unmountStale(ctx)
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, err
	}
	d := &smallDisk{path: path}
	out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", diskSize), source(), path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("mounting a small disk: %w: %s", err, out)
	}
	if err := d.load(); err != nil {
		d.unmount()
		return nil, fmt.Errorf("putting ballast on the small disk: %w", err)
	}
	return d, nil
}

func (d *smallDisk) load() error {
	file, err := os.Create(filepath.Join(d.path, "ballast"))
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, 1<<20)
	for range ballast / len(chunk) {
		if _, err := file.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

func source() string { return fmt.Sprint(diskSource, os.Getpid()) }

func (d *smallDisk) unmount() {
	_ = exec.CommandContext(context.Background(), "umount", "-l", d.path).Run()
}

// unmountStale unmounts the disks of killed runs.
func unmountStale(ctx context.Context) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && isStale(strings.TrimPrefix(fields[0], diskSource), fields[0]) {
			_ = exec.CommandContext(ctx, "umount", "-l", fields[1]).Run()
		}
	}
}

// isStale reports whether the name belongs to a run whose process is gone.
func isStale(pid, name string) bool {
	if pid == name {
		return false
	}
	_, err := os.Stat("/proc/" + pid)
	return os.IsNotExist(err)
}

// leave changes the size so that only that many per cent are free.
func (d *smallDisk) leave(ctx context.Context, percent uint64) error {
	used, _, err := d.usage()
	if err != nil {
		return err
	}
	return d.resize(ctx, used+used*percent/(100-percent))
}

// usage returns the bytes that are used and those that are free.
func (d *smallDisk) usage() (used, free uint64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.path, &fs); err != nil {
		return 0, 0, fmt.Errorf("looking at the small disk: %w", err)
	}
	return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize), fs.Bfree * uint64(fs.Bsize), nil
}

func (d *smallDisk) resize(ctx context.Context, size uint64) error {
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "mount", "-o", fmt.Sprintf("remount,size=%d", size), d.path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("resizing the small disk to %d: %w: %s", size, err, out)
	}
	return nil
}
