package migrations_test

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/migrations"
)

// limit bounds the waiting for what must come.
const limit = 60 * time.Second

// A transaction that has read the table, and stays open, keeps a migration from changing it: writers go on meanwhile, and
// the migration is done when the reader has ended.
func TestUpBesideAReader(t *testing.T) {
	t.Parallel()
	url := stacktest.NewDatabase(t)
	if err := migrations.UpTo(t.Context(), url, migrations.Core, 1); err != nil {
		t.Fatal(err)
	}
	reader := connect(t, url)
	exec := func(sql string) {
		t.Helper()
		if _, err := reader.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`BEGIN ISOLATION LEVEL REPEATABLE READ`)
	exec(`SELECT count(*) FROM txsvc.transactions`)
	written, stop := load(t, url)

	told, done := make(chan string, 100), make(chan error, 1)
	go func() {
		done <- migrations.UpTelling(t.Context(), url, func(what string) { told <- what }, migrations.Core)
	}()
	want := fmt.Sprintf("session %d, idle in transaction, its transaction is open for ", reader.PgConn().PID())
	for range 2 {
		if got := receive(t, told, "attempt that gets no lock"); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
		from := written.Load()
		await.True(t, limit, "write while the migration waits", func() bool { return written.Load() > from+20 })
	}
	exec(`COMMIT`)
	if err := receive(t, done, "end of the migration"); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Errorf("the version before could not write: %v", err)
	}
	if got := applied(t, url, migrations.Core); got != "core: all" {
		t.Errorf("got %s", got)
	}
}

// A migration that gets no lock gives up, says who holds it, the longest first, and can be done later, whatever it left.
func TestUpGivesUp(t *testing.T) {
	t.Parallel()
	url := stacktest.NewDatabase(t)
	if err := migrations.UpTo(t.Context(), url, migrations.Core, 1); err != nil {
		t.Fatal(err)
	}
	exec := func(conn *pgx.Conn, statements ...string) {
		t.Helper()
		for _, sql := range statements {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec(connect(t, url),
		`CREATE INDEX transactions_due ON txsvc.transactions (kind)`, // as if making it had failed
		`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'txsvc.transactions_due'::regclass`)
	readers := make([]*pgx.Conn, 5)
	for i := range readers {
		readers[i] = connect(t, url)
	}
	var oldest []string // which are not the first, nor the last, to connect
	for _, i := range []int{2, 0, 4, 1, 3} {
		exec(readers[i], `BEGIN`, `SELECT count(*) FROM txsvc.transactions`)
		oldest = append(oldest, fmt.Sprintf("session %d, idle in transaction, its transaction is open for ", readers[i].PgConn().PID()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	tell := func(string) { cancel() }
	err := migrations.UpTelling(ctx, url, tell, migrations.Core)
	if err == nil || strings.Contains(err.Error(), "count(*)") {
		t.Errorf("got %v, want an error without the statement", err)
	}
	seconds := regexp.MustCompile(` \d+ s\b`)
	_, who, _ := strings.Cut(seconds.ReplaceAllString(fmt.Sprint(err), " "), "it is held by ")
	if want := strings.Join(oldest[:3], "; "); who != want {
		t.Errorf("got %q, want the oldest three, %q", who, want)
	}
	for _, reader := range readers {
		if err := reader.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	up(t, url, migrations.Core)
	var definition string
	err = connect(t, url).QueryRow(t.Context(), `SELECT string_agg(pg_get_indexdef(indexrelid) || ' ' || indisvalid, '')
		FROM pg_index WHERE indexrelid = 'txsvc.transactions_due'::regclass`).Scan(&definition)
	if err != nil || !strings.Contains(definition, "(ordered, outbox, lease_until)") || !strings.HasSuffix(definition, "true") {
		t.Errorf("got %s (%v), want the index that the migration makes", definition, err)
	}
}

// No migration makes or drops an index of a table that was there before while others wait for it, and none that works
// without a transaction forgets to bound its waiting again.
func TestMigrationsAreMadeBesideWriters(t *testing.T) {
	t.Parallel()
	index := regexp.MustCompile(`(?i)\b(?:CREATE (?:UNIQUE )?|DROP |RE)INDEX (CONCURRENTLY)?[^;]*?(?: ON |IF EXISTS |; *$)(?:ONLY )?([\w.]+)`)
	table := regexp.MustCompile(`(?i)\bCREATE TABLE (?:IF NOT EXISTS )?([\w.]+)`)
	err := fs.WalkDir(migrations.Files(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := migrations.Files().ReadFile(path)
		if err != nil {
			return err
		}
		fresh := make(map[string]bool)
		for _, m := range table.FindAllStringSubmatch(string(text), -1) {
			fresh[m[1]] = true
		}
		for _, m := range index.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "" && !fresh[m[2]] {
				t.Errorf("%s: %q makes all who write to the table wait: it needs CONCURRENTLY", path, m[0])
			}
		}
		for _, direction := range strings.Split(string(text), "-- +goose Down") {
			if strings.Count(direction, "\nSET lock_timeout") != strings.Count(direction, "\nRESET lock_timeout") {
				t.Errorf("%s: SET lock_timeout without RESET: the next statement would keep others waiting", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// load writes rows as version 1 does, from four sessions, until stop is called.
func load(t *testing.T, url string) (written *atomic.Int64, stop func() error) {
	t.Helper()
	written = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	var writers errgroup.Group
	for w := range 4 {
		conn := connect(t, url)
		writers.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := conn.Exec(context.WithoutCancel(ctx), `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag,
					broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset, created_at)
					VALUES ($1, 'k', 'committed', 'pending', 's', 't', '', 'b', 0, 'hash', '', $1, 0, 0, now())`, fmt.Sprintf("%d-%d", w, n))
				if err != nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
	}
	t.Cleanup(cancel)
	return written, func() error { cancel(); return writers.Wait() }
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(limit):
		t.Fatalf("no %s within %s", what, limit)
		panic("not reached")
	}
}
