package sessions_test

import (
	"testing"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	makeReadOnly = `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$`
	endReadOnly  = `SET default_transaction_read_only = off;
		DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' RESET default_transaction_read_only'; END $$`
	endSessions = `SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
)

// A database that is read-only refuses, and says so; when it is not any more, the next transaction commits, with as few
// connections as there may be.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=4" }))
	e.Connected(4)
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", "before", pgtest.Order)), txn.OutcomeCommitted)
	e.Exec(makeReadOnly)
	e.Exec(endSessions)
	a := pgtest.Attempt("orders", "meanwhile", pgtest.Order)
	for range 8 {
		pgtest.WantFailed(t, e.Store.Run(t.Context(), a), txn.CodeDatabaseUnavailable, "the database is read-only; nothing was changed")
	}
	if err := e.Store.Check(t.Context()); err == nil || err.Error() != "the database is read-only" {
		t.Errorf("check: got %v, want that the database is read-only", err)
	}
	if _, err := e.Store.Find(t.Context(), "before"); err == nil {
		t.Error("reading from a database that may have been demoted succeeded")
	}
	e.Exec(endReadOnly)
	await.True(t, pgtest.Patience, "transaction that commits", func() bool { return e.Store.Run(t.Context(), a).Kind == txn.OutcomeCommitted })
	if err := e.Store.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	if n := e.Count(`txsvc.transactions`); n != 2 {
		t.Errorf("got %d rows, want 2", n)
	}
}

// Sessions that say that they do not write, or did so to a statement, are not used again.
func TestReadOnlySessions(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=2" }),
		pgtest.WithProgram("reader", pgtest.Statements(`SET LOCAL transaction_read_only = on`, `DELETE FROM txsvc.transactions WHERE id = $1`)))
	for name, spoil := range map[string]func(){
		"a setting": func() {
			if _, err := e.Pool.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
				t.Fatal(err)
			}
		},
		"an error": func() {
			pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("reader", "reads", pgtest.Order)), txn.CodeDatabaseUnavailable, "the database is read-only")
		},
	} {
		e.Connected(1)
		before := e.Pool.Stat().NewConnsCount()
		spoil()
		pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", name, pgtest.Order)), txn.OutcomeCommitted)
		if e.Pool.Stat().NewConnsCount() == before {
			t.Errorf("%s: the session was used again", name)
		}
	}
}
