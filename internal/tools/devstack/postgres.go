package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// databaseUser owns the cluster and the database of the same name.
const databaseUser = "txsvc"

// cluster is PostgreSQL's data directory.
type cluster struct {
	data  string
	owner *owner
}

// prepareCluster makes the cluster on the first run and checks it on later ones.
func prepareCluster(ctx context.Context, s *Stack, o *owner) (*cluster, error) {
	var err error
	if s.password, err = keptPassword(s.dir.join("postgres-password")); err != nil {
		return nil, fmt.Errorf("keeping the database password: %w", err)
	}
	home, err := clusterHome(s.dir, o)
	if err != nil {
		return nil, fmt.Errorf("preparing PostgreSQL's directory: %w", err)
	}
	c := &cluster{data: filepath.Join(home, "data"), owner: o}
	version, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.opts.Progress("creating the database cluster")
		return c, c.init(ctx, s, home)
	case err != nil:
		return nil, fmt.Errorf("reading the cluster's version: %w", err)
	}
	major, _, _ := strings.Cut(PostgresVersion, ".")
	if got := strings.TrimSpace(string(version)); got != major {
		return nil, fmt.Errorf("the cluster in %s was made by PostgreSQL %s, this is %s: remove %s to start afresh",
			c.data, got, PostgresVersion, s.opts.Dir)
	}
	return c, c.forgetFormerRun()
}

// forgetFormerRun removes the pid file of a postmaster that was killed. The run's locks show that none is left. The
// number in the file may belong to another process by now, and then PostgreSQL would refuse to start.
func (c *cluster) forgetFormerRun() error {
	err := os.Remove(filepath.Join(c.data, "postmaster.pid"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the stale pid file: %w", err)
	}
	return nil
}

func keptPassword(path string) (string, error) {
	kept, err := os.ReadFile(path)
	if err == nil {
		return string(kept), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	password := rand.Text()
	return password, writeFile(path, []byte(password), 0o600)
}

// init runs initdb in another directory and moves the finished cluster to its place, so that an interrupted one is
// never taken for a whole one.
func (c *cluster) init(ctx context.Context, s *Stack, home string) error {
	aside, secret := filepath.Join(home, "data.new"), filepath.Join(home, "password.new")
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("removing an unfinished cluster: %w", err)
	}
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return fmt.Errorf("passing the password: %w", err)
	}
	defer os.Remove(secret)
	if err := os.Mkdir(aside, 0o700); err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	if err := errors.Join(c.owner.give(secret), c.owner.give(aside)); err != nil {
		return err
	}
	// Many iterations protect weak passwords. This one is random, and each costs the client of every new connection time.
	cmd := exec.CommandContext(ctx, filepath.Join(s.install.postgres, "bin", "initdb"),
		"--pgdata="+aside, "--username="+databaseUser, "--pwfile="+secret, "--auth=scram-sha-256", "--set=scram_iterations=1",
		"--encoding=UTF8", "--locale=C", "--no-instructions")
	cmd.Dir, cmd.Env = home, postgresEnv()
	cmd.ExtraFiles = []*os.File{s.dir.children} // so that a later run waits for initdb
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.owner.credential()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w:\n%s", err, lastLines(string(out)))
	}
	if err := os.Rename(aside, c.data); err != nil {
		return fmt.Errorf("putting the cluster in its place: %w", err)
	}
	return nil
}

// postgresEnv is the server's environment, without PG* variables of this process.
func postgresEnv() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

func postgresSpec(s *Stack, c *cluster, port int) spec {
	settings := map[string]string{
		"port":                    strconv.Itoa(port),
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"max_connections":         "200",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	maps.Copy(settings, s.opts.PostgresConfig)
	args := make([]string, 0, 3+2*len(settings))
	args = append(args, filepath.Join(s.install.postgres, "bin", "postgres"), "-D", c.data)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return spec{
		name: "PostgreSQL", args: args, dir: c.data, env: postgresEnv(), owner: c.owner,
		log:     s.dir.log("postgres"),
		orderly: syscall.SIGINT, immediate: syscall.SIGQUIT, // pg_ctl's fast and immediate
		tree:  true,
		ready: func(ctx context.Context) error { return s.postgresReady(ctx, port) },
	}
}

func (s *Stack) databaseURL(port int, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(databaseUser, s.password),
		Host: fmt.Sprintf("127.0.0.1:%d", port), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// postgresReady runs a query. The first time it also creates the database txsvc.
func (s *Stack) postgresReady(ctx context.Context, port int) error {
	conn, err := pgx.Connect(ctx, s.databaseURL(port, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", databaseUser).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+databaseUser)
	return err
}
