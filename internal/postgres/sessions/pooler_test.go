package sessions_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
	"github.com/txsvc/txsvc/migrations"
)

// pgbouncer starts a real PgBouncer before the database and returns the URL that leads through it.
func pgbouncer(t *testing.T, database, mode string, settings ...string) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // where Debian has it, outside of an ordinary PATH
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	dir, err := os.MkdirTemp("", "txsvc-pgbouncer-") // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	config := fmt.Sprintf("[databases]\n%s = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\npool_mode = %s\ndefault_pool_size = %d\nmax_client_conn = 100\n%s\n",
		strings.TrimPrefix(u.Path, "/"), u.Hostname(), u.Port(), u.User.Username(), password, port, mode, map[string]int{"session": 20}[mode]+4, strings.Join(settings, "\n"))
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", file}
	}
	command := exec.Command(path, args...)
	var log strings.Builder
	command.Stderr = &log
	if err := command.Start(); err != nil {
		t.Fatalf("starting PgBouncer (Debian: apt-get install pgbouncer): %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("PgBouncer: %s", log.String())
		}
	})
	u.Host = "127.0.0.1:" + port
	await.True(t, pgtest.Patience, "PgBouncer", func() bool {
		conn, err := net.DialTimeout("tcp", u.Host, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return u.String()
}

// tenants is a kind that leaves a setting and a lock in its session, and refuses when it meets a setting.
const tenants = `DO $$ BEGIN IF coalesce(current_setting('app.tenant', true), '') <> '' THEN RAISE 'met a tenant'; END IF; END $$`

// PgBouncer is found out about, however it is set up, and used in a way that works with each mode in which it can work.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode     string
		settings []string
	}{
		"transaction":                    {"transaction", nil},
		"transaction, ignoring settings": {"transaction", []string{"ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout,extra_float_digits"}},
		"session":                        {"session", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, err := task.ParseSQL(`INSERT INTO notes (id, payload) VALUES (@id, @payload); SELECT id, current_setting('statement_timeout') AS timeout FROM notes WHERE id = @id`)
			if err != nil {
				t.Fatal(err)
			}
			e := pgtest.New(t, pgtest.WithURL(func(database string) string {
				return pgbouncer(t, database, tt.mode, tt.settings...) + "&pool_max_conns=8"
			}),
				pgtest.WithTables(`CREATE TABLE public.notes (id text PRIMARY KEY, payload jsonb)`), pgtest.WithProgram("sql", kept),
				pgtest.WithProgram("tenants", pgtest.Statements(tenants, `SELECT set_config('app.tenant', $1, false), pg_advisory_lock(4711)`, `CREATE TEMP TABLE left_behind (n int)`)),
				pgtest.WithProgram("handler", pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
					_, err := tx.Exec(ctx, `INSERT INTO public.notes (id) VALUES ($1)`, in.ID)
					return "noted", err
				})), pgtest.WithProgram("snapshot", pgtest.Isolated(pgtest.Statements(`SELECT 1`), pgx.Serializable)))
			if err := e.Store.Check(t.Context()); err != nil {
				t.Fatalf("check: %v", err)
			}
			if err := migrations.Up(t.Context(), e.Pool.Config().ConnString(), migrations.Core); err == nil || !strings.Contains(err.Error(), "a connection pooler stands before the database") {
				t.Errorf("migrating: got %v, want that a pooler is there", err)
			}
			var background []<-chan txn.Outcome
			for i := range 60 {
				kind := []string{"orders", "sql", "tenants", "handler"}[i%4]
				background = append(background, e.InBackground(pgtest.Attempt(kind, fmt.Sprint(kind, i), pgtest.Order)))
			}
			for _, done := range background {
				pgtest.WantKind(t, pgtest.Wait(t, "outcome", done), txn.OutcomeCommitted)
			}
			if got, want := string(e.Find("sql1").Result), `{"id":"sql1","timeout":"5s"}`; got != want {
				t.Errorf("result: got %s, want %s", got, want)
			}
			if n := e.Count(`pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 0 {
				t.Errorf("%d locks of sessions are left", n)
			}
			a := pgtest.Attempt("snapshot", "snapshot", pgtest.Order)
			a.Kind.Ordered = true
			pgtest.WantFailed(t, e.Store.Run(t.Context(), a), txn.CodeDatabaseUnavailable, "need a direct connection to the database")
		})
	}
}

func TestPgBouncerOfStatements(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(database string) string { return pgbouncer(t, database, "statement") }))
	const why = "the connection pooler gives each statement another session: the service needs pool_mode = transaction (or session)"
	if err := e.Store.Check(t.Context()); err == nil || err.Error() != why {
		t.Errorf("check: got %v, want %s", err, why)
	}
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", "tx-1", pgtest.Order)), txn.CodeDatabaseUnavailable, why)
}
