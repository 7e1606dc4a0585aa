package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// awayPattern matches the directories of clusters that cannot be in their stack's directory. The file ownerFile in each
// names that directory.
const (
	awayParent  = "/var/lib/txsvc" // not /var/tmp, because systems remove old files there
	awayPattern = "postgres-*"
	ownerFile   = "belongs-to"
)

// clusterHome returns the directory of the cluster: Dir/postgres, or the target of that link when the cluster's owner
// cannot reach Dir; see the package comment.
func clusterHome(d *stateDir, o *owner) (string, error) {
	link := d.join("postgres")
	if o == nil {
		return link, os.MkdirAll(link, 0o700)
	}
	if home, err := filepath.EvalSymlinks(link); err == nil && o.reaches(home) {
		return home, updateOwnerFile(home, d.path)
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

// moveAway makes a directory for the cluster outside of Dir. It returns an error when Dir has a cluster already, which
// another user made or which was moved there.
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
	// The file comes last, because without it the directory cannot be taken for an abandoned one.
	return home, os.WriteFile(filepath.Join(home, ownerFile), []byte(d.path), 0o600)
}

// updateOwnerFile changes the file when the stack's directory was moved.
func updateOwnerFile(home, dir string) error {
	path := filepath.Join(home, ownerFile)
	if !exists(path) { // not moved away
		return nil
	}
	return os.WriteFile(path, []byte(dir), 0o600)
}

// removeAbandoned removes clusters whose stack's directory is gone. It leaves those whose parent directory is missing
// too, because that may be a disk that is not mounted now. The next call tries again what this one cannot remove.
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
