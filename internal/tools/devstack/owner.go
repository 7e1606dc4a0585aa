package devstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is the unprivileged user that PostgreSQL runs as when this process is root.
type owner struct {
	name     string
	uid, gid uint32
}

// clusterOwner returns nil when this process is not root; then PostgreSQL runs as the same user.
func clusterOwner(name string) (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and its user is unknown: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user id of %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group id of %s: %w", name, err)
	}
	if uid == 0 {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %s is root too", name)
	}
	return &owner{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
}

func (o *owner) credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// give makes the owner own path.
func (o *owner) give(path string) error {
	if o == nil {
		return nil
	}
	if err := os.Chown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("giving %s to %s: %w", path, o.name, err)
	}
	return nil
}

// reaches reports whether the owner can enter dir. It tries, because permissions of parents, access lists and mounts
// all matter.
func (o *owner) reaches(dir string) bool {
	if o == nil {
		return true
	}
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `cd "$1"`, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.credential()}
	return cmd.Run() == nil
}
