package sessions_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// Connections that died while they were idle are seen before anything is sent through them: the first transactions after
// a restart of the server are not "unknown". While it is down they fail, and say that nothing was changed.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{DatabaseOnly: true})
	e := pgtest.NewAt(t, stack.DatabaseURL())
	run := func(n int, id string) []txn.Outcome {
		var background []<-chan txn.Outcome
		for i := range n {
			background = append(background, e.InBackground(pgtest.Attempt("orders", id+string(rune('a'+i)), pgtest.Order)))
		}
		outcomes := make([]txn.Outcome, n)
		for i, done := range background {
			outcomes[i] = pgtest.Wait(t, "outcome", done)
		}
		return outcomes
	}
	for _, o := range run(8, "before-") {
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
	}
	if e.Pool.Stat().IdleConns() < 2 {
		t.Fatalf("got %d idle connections, want some to die", e.Pool.Stat().IdleConns())
	}
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := pgtest.Attempt("orders", "down", pgtest.Order)
	for range 3 {
		start := time.Now()
		pgtest.WantFailed(t, e.Store.Run(t.Context(), a), txn.CodeDatabaseUnavailable, "did not answer; nothing was changed")
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the answer took %s", took)
		}
	}
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range run(8, "after-") {
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
	}
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)

	// Again, with connections that nobody used in between.
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range run(8, "again-") {
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
	}
	if n := e.Count("txsvc.transactions WHERE state = 'committed' AND NOT abandoned"); n != 25 {
		t.Errorf("got %d rows, want 25", n)
	}
	leadElsewhere(t, stack.DatabaseURL())
}

// Where an address leads to another server now, sessions of the former one, which may live on, are closed as soon as
// one of the new one begins.
func leadElsewhere(t *testing.T, other string) {
	t.Helper()
	first := stacktest.NewDatabase(t)
	old, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := url.Parse(other)
	if err != nil {
		t.Fatal(err)
	}
	side := pgtest.NewPool(t, other)
	password, _ := old.User.Password()
	name := strings.TrimPrefix(old.Path, "/")
	for _, sql := range []string{`CREATE DATABASE ` + name, `ALTER ROLE ` + old.User.Username() + ` PASSWORD '` + password + `'`} {
		if _, err := side.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	p := pgtest.NewProxy(t)
	pool := pgtest.NewPool(t, p.Through(first))
	acquire := func(n int) (started []string, release func()) {
		t.Helper()
		started = make([]string, n)
		conns := make([]*pgxpool.Conn, n)
		for i := range n {
			if conns[i], err = pool.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := conns[i].QueryRow(t.Context(), `SELECT pg_postmaster_start_time()::text`).Scan(&started[i]); err != nil {
				t.Fatal(err)
			}
		}
		return started, func() {
			for _, c := range conns {
				c.Release()
			}
		}
	}
	before, release := acquire(3)
	release()
	p.Retarget(moved.Host)
	mixed, release := acquire(4)
	release()
	if mixed[0] != before[0] || mixed[3] == before[0] {
		t.Fatalf("got servers started at %q, want three sessions of %s and one of another", mixed, before[0])
	}
	after, release := acquire(4)
	release()
	if slices.Contains(after, before[0]) {
		t.Errorf("got servers started at %q, want none of %s", after, before[0])
	}
}
