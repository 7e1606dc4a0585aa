package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// awayPattern are the directories of clusters that cannot live in their stack's
// directory; the file ownerFile in each names that directory.
const (
	awayParent  = "/var/lib/txsvc" // not /var/tmp, where systems remove what is old
	awayPattern = "postgres-*"
	ownerFile   = "belongs-to"
)

// clusterHome is the directory that holds the cluster: Dir/postgres, or what that
// links to when the cluster's owner cannot reach it; see the package comment.
func clusterHome(d *stateDir, o *owner) (string, error) {
	link := d.join("postgres")
	if o == nil {
		return link, os.MkdirAll(link, 0o700)
	}
	if home, err := filepath.EvalSymlinks(link); err == nil && o.reaches(home) {
		return home, keepOwnerFile(home, d.path)
	}
	removeAbandoned()
	if err := os.Chmod(d.path, 0o755); err != nil { // ours; secrets in it have modes of their own
		return "", err
	}
	if err := os.MkdirAll(link, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if o.reaches(link) {
		return link, nil
	}
	return moveAway(d, link, o)
}

// moveAway makes a home for the cluster outside. A cluster that is in Dir already,
// made by another user or moved here, is not touched: an error says so.
func moveAway(d *stateDir, link string, o *owner) (string, error) {
	if err := os.Remove(link); err != nil {
		return "", fmt.Errorf("the user %s cannot reach the cluster in %s: %w", o.name, link, err)
	}
	if err := os.MkdirAll(awayParent, 0o755); err != nil {
		return "", err
	}
	home, err := os.MkdirTemp(awayParent, awayPattern)
	if err != nil {
		return "", err
	}
	if err := os.Chmod(home, 0o711); err != nil {
		return "", err
	}
	if err := os.Symlink(home, link); err != nil {
		return "", err
	}
	// Last: until it is there, nobody takes the directory for an abandoned one.
	return home, os.WriteFile(filepath.Join(home, ownerFile), []byte(d.path), 0o600)
}

// keepOwnerFile follows a stack's directory that was moved.
func keepOwnerFile(home, dir string) error {
	path := filepath.Join(home, ownerFile)
	if !exists(path) { // not moved away
		return nil
	}
	return os.WriteFile(path, []byte(dir), 0o600)
}

// removeAbandoned removes clusters whose stack's directory is gone from its parent;
// a missing parent may be a disk that is not mounted now. What it cannot remove
// stays for the next time.
func removeAbandoned() {
	homes, _ := filepath.Glob(filepath.Join(awayParent, awayPattern)) // the pattern is well-formed
	for _, home := range homes {
		dir, err := os.ReadFile(filepath.Join(home, ownerFile))
		if err != nil || !exists(filepath.Dir(string(dir))) {
			continue
		}
		if target, _ := os.Readlink(filepath.Join(string(dir), "postgres")); target != home {
			_ = os.RemoveAll(home)
		}
	}
}
