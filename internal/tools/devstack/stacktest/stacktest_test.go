package stacktest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m)) }

func TestSharedStack(t *testing.T) {
	s := stacktest.Shared(t)
	if again := stacktest.Shared(t); again != s {
		t.Error("got another stack the second time")
	}
	if len(s.Nameservers) != 1 || s.URL == "" {
		t.Fatalf("got %+v, want a database and a name server", s)
	}
	first, _, _ := strings.Cut(s.Classpath, string(os.PathListSeparator))
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the class path: %v", err)
	}
	out, err := s.MQAdmin(t.Context(), "clusterList")
	if err != nil || !strings.Contains(out, "broker-a") {
		t.Errorf("got %q, %v, want broker-a", out, err)
	}
}

// Each test has its own database, which is dropped afterwards, with all connections.
func TestNewDatabase(t *testing.T) {
	names := map[string]bool{}
	for range 2 {
		t.Run("a test", func(t *testing.T) {
			conn := connect(t, stacktest.NewDatabase(t))
			if _, err := conn.Exec(t.Context(), "create table same_name ()"); err != nil {
				t.Error(err)
			}
			var name string
			if err := conn.QueryRow(t.Context(), "select current_database()").Scan(&name); err != nil {
				t.Fatal(err)
			}
			names[name] = true
		})
	}
	migrated := connect(t, stacktest.NewMigrated(t))
	var path string
	var rows int
	err := migrated.QueryRow(t.Context(), "select count(*), current_setting('search_path') from txsvc.transactions").Scan(&rows, &path)
	if err != nil || path != "public" {
		t.Errorf("a migrated database: got %v and the search path %q, want the service's table, and its schema not in the path", err, path)
	}
	if len(names) != 2 {
		t.Errorf("got databases %v, want two", names)
	}
	conn := connect(t, stacktest.Shared(t).URL)
	for name := range names {
		var exists bool
		err := conn.QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
		if err != nil || exists {
			t.Errorf("database %s: got exists %t, %v, want it dropped", name, exists, err)
		}
	}
}

// connect closes the connection only after the test's own cleanups, so after the database was dropped.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
