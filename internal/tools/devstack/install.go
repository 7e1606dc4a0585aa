package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The pinned versions.
const (
	PostgresVersion = "18.1"
	RocketMQVersion = "5.4.0"

	postgresArtifact = "18.1.0"
	// The plugin's version is pinned too, because Maven's default depends on Maven's own version.
	copyGoal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
)

// installation has the paths of the binaries.
type installation struct {
	java        string
	javaVersion string // what java says of it
	postgres    string // holds bin, lib, share
	classpath   string
	archives    string // holds the class archives; empty: there are none
}

// install puts the binaries into the cache, once for all stacks of the user.
func install(ctx context.Context, o Options, java, javaVersion string, owner *owner) (*installation, error) {
	cache, err := cacheDir(o.CacheDir, owner)
	if err != nil {
		return nil, fmt.Errorf("preparing the cache of binaries: %w", err)
	}
	inst := &installation{
		java: java, javaVersion: javaVersion,
		postgres: filepath.Join(cache, "postgres-"+postgresArtifact+"-"+postgresPlatform()),
	}
	rocketmq := filepath.Join(cache, "rocketmq-"+o.RocketMQVersion)
	if err := installBoth(ctx, o, cache, inst.postgres, rocketmq); err != nil {
		return nil, err
	}
	jars, err := filepath.Glob(filepath.Join(rocketmq, "*.jar"))
	if err != nil || len(jars) == 0 {
		return nil, fmt.Errorf("no RocketMQ in %s: remove that directory", rocketmq)
	}
	inst.classpath = strings.Join(jars, string(os.PathListSeparator))
	if o.ClassArchive {
		if inst.archives, err = installArchives(ctx, o, cache, inst); err != nil {
			o.Progress("RocketMQ starts without an archive of its classes: " + err.Error())
		}
	}
	return inst, nil
}

func installBoth(ctx context.Context, o Options, cache, postgres, rocketmq string) error {
	if exists(postgres) && exists(rocketmq) {
		return nil
	}
	lock, err := lockCache(ctx, o, cache)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := once(postgres, func(aside string) error {
		o.Progress("fetching PostgreSQL " + PostgresVersion + " with Maven")
		return fetchPostgres(ctx, aside)
	}); err != nil {
		return fmt.Errorf("fetching PostgreSQL: %w", err)
	}
	if err := once(rocketmq, func(aside string) error {
		o.Progress("fetching RocketMQ " + o.RocketMQVersion + " with Maven")
		return fetchRocketMQ(ctx, aside, o.RocketMQVersion)
	}); err != nil {
		return fmt.Errorf("fetching RocketMQ: %w", err)
	}
	return nil
}

// lockCache returns when no other run fills the cache. Closing the file releases the lock.
func lockCache(ctx context.Context, o Options, cache string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	waiting := func() { o.Progress("waiting for another run that fills the cache of binaries") }
	if err := awaitLock(ctx, lock, syscall.LOCK_EX, waiting); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("locking the cache of binaries: %w", err)
	}
	return lock, nil
}

// installArchives makes the class archives in the cache, once, and returns their directory.
func installArchives(ctx context.Context, o Options, cache string, inst *installation) (string, error) {
	dir := classArchives(cache, inst.javaVersion, o.RocketMQVersion)
	if exists(dir) {
		return dir, nil
	}
	lock, err := lockCache(ctx, o, cache)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	return dir, once(dir, func(aside string) error {
		o.Progress("keeping an archive of RocketMQ's classes, from which it starts faster")
		return archiveClasses(ctx, o, inst, aside)
	})
}

// once fills dir unless it exists. It renames dir at the end, so a directory that exists is complete.
func once(dir string, fill func(aside string) error) error {
	if exists(dir) {
		return nil
	}
	aside := dir + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.MkdirAll(aside, 0o755); err != nil {
		return err
	}
	if err := fill(aside); err != nil {
		return err
	}
	return os.Rename(aside, dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cacheDir returns the configured directory, or the user's own. When the cluster's owner cannot reach root's own, it
// returns one of the system.
func cacheDir(configured string, o *owner) (string, error) {
	if configured != "" {
		return configured, os.MkdirAll(configured, 0o755)
	}
	parent, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(parent, "txsvc", "stack")
		if err = os.MkdirAll(dir, 0o755); err == nil && o.reaches(dir) {
			return dir, nil
		}
	}
	if o == nil {
		return "", err
	}
	dir := filepath.Join("/var/cache", "txsvc", "stack")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if !o.reaches(dir) {
		return "", fmt.Errorf("the user %s cannot reach %s", o.name, dir)
	}
	return dir, nil
}

func fetchRocketMQ(ctx context.Context, dir, version string) error {
	const group = "org.apache.rocketmq"
	return copyDependencies(ctx, dir,
		dependency{group, "rocketmq-namesrv", version},
		dependency{group, "rocketmq-broker", version},
		dependency{group, "rocketmq-tools", version})
}

func fetchPostgres(ctx context.Context, dir string) error {
	name := "embedded-postgres-binaries-" + postgresPlatform()
	if err := copyDependencies(ctx, dir, dependency{"io.zonky.test.postgres", name, postgresArtifact}); err != nil {
		return err
	}
	jar := filepath.Join(dir, name+"-"+postgresArtifact+".jar")
	if err := unpackPostgres(jar, dir); err != nil {
		return fmt.Errorf("unpacking it: %w", err)
	}
	return os.Remove(jar)
}

// postgresPlatform returns the artifact's name for this machine.
func postgresPlatform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	platform := runtime.GOOS + "-" + arch
	if musl, _ := filepath.Glob("/lib/ld-musl-*"); len(musl) > 0 {
		platform += "-alpine"
	}
	return platform
}

type dependency struct{ group, artifact, version string }

// copyDependencies makes Maven copy the artifacts and their dependencies at run time into dir.
func copyDependencies(ctx context.Context, dir string, deps ...dependency) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New("the first start needs Maven, and there is none: " + installMaven)
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, []byte(pomOf(deps)), 0o644); err != nil {
		return err
	}
	defer os.Remove(pom)
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, copyGoal,
		"-DincludeScope=runtime", "-DoutputDirectory="+dir)
	cmd.WaitDelay = time.Second // its children may hold the pipe after a cancel
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", strings.Join(cmd.Args, " "), err, lastLines(string(out)))
	}
	return nil
}

func pomOf(deps []dependency) string {
	var b strings.Builder
	b.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>txsvc</groupId><artifactId>devstack</artifactId><version>1</version><dependencies>
`)
	for _, d := range deps {
		fmt.Fprintf(&b, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n",
			d.group, d.artifact, d.version)
	}
	b.WriteString("</dependencies></project>\n")
	return b.String()
}
