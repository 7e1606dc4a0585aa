package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Artifact names a Maven artifact.
type Artifact struct{ Group, Name, Version string }

// Classpath returns the Java class path of some artifacts, with all that they need at run time. Maven fetches them the first time, into
// the directory name of the user's cache. Another set of artifacts needs another name.
func Classpath(ctx context.Context, name string, progress func(step string), artifacts ...Artifact) (string, error) {
	cache, err := cacheDir("", nil)
	if err != nil {
		return "", fmt.Errorf("devstack: preparing the cache of binaries: %w", err)
	}
	dir := filepath.Join(cache, name)
	if !exists(dir) {
		lock, err := lockCache(ctx, Options{Progress: progress}, cache)
		if err != nil {
			return "", fmt.Errorf("devstack: %w", err)
		}
		defer lock.Close()
	}
	err = once(dir, func(aside string) error {
		progress("fetching " + name + " with Maven")
		dependencies := make([]dependency, len(artifacts))
		for i, a := range artifacts {
			dependencies[i] = dependency{a.Group, a.Name, a.Version}
		}
		return copyDependencies(ctx, aside, dependencies...)
	})
	if err != nil {
		return "", fmt.Errorf("devstack: fetching %s: %w", name, err)
	}
	jars, err := filepath.Glob(filepath.Join(dir, "*.jar"))
	if err != nil || len(jars) == 0 {
		return "", fmt.Errorf("devstack: no artifacts in %s: remove that directory", dir)
	}
	return strings.Join(jars, string(os.PathListSeparator)), nil
}
