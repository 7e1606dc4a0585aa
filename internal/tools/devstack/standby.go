package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Server is one PostgreSQL server of a stack: the first one, or a [Stack.Standby].
type Server struct {
	*Process

	stack   *Stack
	cluster *cluster
	port    int
}

// StandbyName is the name, in synchronous_standby_names, of a server that follows another.
const StandbyName = "standby"

// Server returns the first database server of the stack.
func (s *Stack) Server() *Server { return s.server }

// Standby makes a second database server with a port of its own. It runs from [Server.Follow] on, and ends with the
// stack. Call Standby once.
func (s *Stack) Standby() (*Server, error) {
	c := portChooser{used: map[int]bool{}}
	v := &Server{stack: s, port: c.choose("the standby", 0, 0, 0)}
	if c.err != nil {
		return nil, c.err
	}
	v.cluster = &cluster{data: filepath.Join(filepath.Dir(s.server.cluster.data), "standby"), owner: s.server.cluster.owner}
	v.Process = s.newProcess(postgresSpec(s, v.cluster, v.port))
	v.spec.name, v.spec.log = "the standby", s.dir.log("standby")
	s.standby = v
	return v, nil
}

// Port returns the server's port on 127.0.0.1.
func (v *Server) Port() int { return v.port }

// DatabaseURL returns the URL of the database txsvc on this server, with its password.
func (v *Server) DatabaseURL() string { return v.stack.databaseURL(v.port, databaseUser) }

// Follow makes the server a standby of another one, with a copy of all its data, and starts it. It removes the server's
// data of before. The other server's synchronous_standby_names decide whether it waits for this one.
func (v *Server) Follow(ctx context.Context, primary *Server) error {
	if v.PID() != 0 {
		return errors.New("the server runs")
	}
	conn, err := pgx.Connect(ctx, v.stack.databaseURL(primary.port, "postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the server that is to be followed: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := v.copyFrom(ctx, conn, primary); err != nil {
		return fmt.Errorf("copying the cluster: %w", err)
	}
	return v.Start(ctx)
}

// copyFrom copies like pg_basebackup, which the artifact does not have. The slot retains the log from the beginning of
// the copy on.
func (v *Server) copyFrom(ctx context.Context, conn *pgx.Conn, primary *Server) error {
	if err := os.RemoveAll(v.cluster.data); err != nil {
		return err
	}
	for _, sql := range []string{
		`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '` + StandbyName + `'`,
		`SELECT pg_create_physical_replication_slot('` + StandbyName + `', true)`,
		`SELECT pg_backup_start('` + StandbyName + `', true)`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := v.cluster.copyTree(primary.cluster.data); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
		return err
	}
	settings := fmt.Sprintf("primary_conninfo = 'host=127.0.0.1 port=%d user=%s password=%s application_name=%s'\nprimary_slot_name = '%s'\n",
		primary.port, databaseUser, v.stack.password, StandbyName, StandbyName)
	return errors.Join(
		v.cluster.write("backup_label", label), v.cluster.write("standby.signal", ""), v.cluster.write("postgresql.auto.conf", settings),
	)
}

func (c *cluster) write(name, text string) error {
	path := filepath.Join(c.data, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return c.owner.give(path)
}

// A copy has these directories without their files: the first because the standby streams the log, the others because
// they belong to the running server.
var notCopied = []string{"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"}

// copyTree copies a cluster that is in use. It ignores files that vanish meanwhile, because they are not needed.
func (c *cluster) copyTree(from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(c.data, name)
		top, below, _ := strings.Cut(name, string(filepath.Separator))
		switch {
		case below != "" && slices.Contains(notCopied, top) && entry.IsDir() && name != filepath.Join("pg_wal", "archive_status"):
			return fs.SkipDir
		case entry.IsDir():
			if err := os.Mkdir(to, 0o700); err != nil {
				return err
			}
			return c.owner.give(to)
		case below != "" && slices.Contains(notCopied, top), name == "postmaster.pid", name == "postmaster.opts", !entry.Type().IsRegular():
			return nil
		}
		if err := copyFile(path, to); err != nil {
			return err
		}
		return c.owner.give(to)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(to, nil, 0o600) // replay of the log removes it
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Promote makes a standby take writes, and returns when it does.
func (v *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, v.stack.databaseURL(v.port, "postgres"))
	if err != nil {
		return fmt.Errorf("connecting to the standby: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	promoted := false
	if err := conn.QueryRow(ctx, `SELECT pg_promote()`).Scan(&promoted); err != nil {
		return fmt.Errorf("promoting the standby: %w", err)
	}
	if !promoted {
		return errors.New("the standby was not promoted in time")
	}
	return nil
}

// WaitForStandby makes each COMMIT on the server wait for the standby, or not.
func (v *Server) WaitForStandby(ctx context.Context, wait bool) error {
	conn, err := pgx.Connect(ctx, v.stack.databaseURL(v.port, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	setting := `ALTER SYSTEM RESET synchronous_standby_names`
	if wait {
		setting = `ALTER SYSTEM SET synchronous_standby_names = '` + StandbyName + `'`
	}
	for _, sql := range []string{setting, `SELECT pg_reload_conf()`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// EitherURL returns a URL of the database txsvc on whichever of the two servers takes writes.
func (s *Stack) EitherURL() string {
	u := s.server.DatabaseURL()
	one := fmt.Sprintf("127.0.0.1:%d", s.server.port)
	return strings.Replace(u, one, fmt.Sprintf("%s,127.0.0.1:%d", one, s.standby.port), 1) + "&target_session_attrs=read-write"
}
