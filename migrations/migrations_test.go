package migrations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m)) }

func TestUpStatusDown(t *testing.T) {
	url := stacktest.NewDatabase(t)
	both := []migrations.Set{migrations.Core, migrations.Example}
	if got := applied(t, url, both...); got != "core: none, example: none" {
		t.Errorf("status of an empty database: got %s", got)
	}
	if tables(t, url) != "" {
		t.Errorf("asking for the status made tables: %s", tables(t, url))
	}
	for range 2 {
		up(t, url, both...)
		if got := applied(t, url, both...); got != "core: all, example: all" {
			t.Errorf("status after up: got %s", got)
		}
	}
	for _, want := range []string{"public.order_items", "public.orders", "public.payments", "txsvc.transactions"} {
		if got := tables(t, url); !strings.Contains(got, want) {
			t.Errorf("tables after up: got %s, want %s among them", got, want)
		}
	}
	down(t, url, migrations.Example)
	if got := applied(t, url, both...); got != "core: all, example: none" {
		t.Errorf("status after down: got %s", got)
	}
	for applied(t, url, migrations.Core) != "core: none" {
		down(t, url, migrations.Core)
	}
	if got := tables(t, url); got != "txsvc.migrations_core txsvc.migrations_example" {
		t.Errorf("tables after down: got %s", got)
	}
	if err := migrations.Down(t.Context(), url, func(string) {}, migrations.Core); err == nil || !strings.Contains(err.Error(), "no core migration is applied") {
		t.Errorf("down with nothing left: got %v", err)
	}
	up(t, url, both...)
	if got := applied(t, url, both...); got != "core: all, example: all" {
		t.Errorf("status after up again: got %s", got)
	}
}

func TestUpInParallel(t *testing.T) {
	url := stacktest.NewDatabase(t)
	var g errgroup.Group
	for range 8 {
		g.Go(func() error { return migrations.Up(t.Context(), url, migrations.Core, migrations.Example) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := applied(t, url, migrations.Core, migrations.Example); got != "core: all, example: all" {
		t.Errorf("got %s", got)
	}
}

// One who waits for the lock gives up with its context, and a lock whose holder is gone is free.
func TestUpWaitsForTheLock(t *testing.T) {
	url := stacktest.NewDatabase(t)
	holder := connect(t, url)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock(7819001)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting, told := make(chan error, 1), make(chan string, 1)
	go func() {
		waiting <- migrations.UpTelling(ctx, url, func(what string) { told <- what }, migrations.Core)
	}()
	if got := <-told; !strings.Contains(got, "other migrations") {
		t.Errorf("got %q, want that it waits for other migrations", got)
	}
	cancel()
	if err := <-waiting; err == nil {
		t.Error("Up returned without the lock")
	}
	if got := tables(t, url); got != "" {
		t.Errorf("Up made tables without the lock: %s", got)
	}
	if err := holder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	up(t, url, migrations.Core)
}

func TestURL(t *testing.T) {
	url := stacktest.NewDatabase(t)
	up(t, url+"&pool_max_conns=7", migrations.Core)
	err := migrations.Up(t.Context(), "postgres://someone:secret@host:port/", migrations.Core)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the password", err)
	}
}

func up(t *testing.T, url string, sets ...migrations.Set) {
	t.Helper()
	if err := migrations.Up(t.Context(), url, sets...); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T, url string, set migrations.Set) {
	t.Helper()
	if err := migrations.Down(t.Context(), url, func(string) {}, set); err != nil {
		t.Fatal(err)
	}
}

// applied says for each set whether all, none or some of its migrations are applied.
func applied(t *testing.T, url string, sets ...migrations.Set) string {
	t.Helper()
	var words []string
	for _, set := range sets {
		list, err := migrations.List(t.Context(), url, set)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, status := range list {
			if status.Applied {
				count++
			}
		}
		word := map[int]string{0: "none", len(list): "all"}[count]
		if word == "" {
			word = fmt.Sprintf("%d of %d", count, len(list))
		}
		words = append(words, string(set)+": "+word)
	}
	return strings.Join(words, ", ")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func tables(t *testing.T, url string) string {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	var names string
	err := conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(schemaname || '.' || tablename, ' ' ORDER BY schemaname, tablename), '')
		FROM (SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'txsvc'))`).Scan(&names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
