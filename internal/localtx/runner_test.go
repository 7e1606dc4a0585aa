package localtx_test

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// More transactions than connections wait for one, no longer than their timeout.
func TestPoolIsExhausted(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }))
	conn, err := e.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", "tx-1", pgtest.Order, 50*time.Millisecond)), txn.CodeDatabaseUnavailable, "nothing was changed")
	waiting := e.InBackground(pgtest.Attempt("orders", "tx-2", pgtest.Order))
	conn.Release()
	pgtest.WantKind(t, pgtest.Wait(t, "outcome", waiting), txn.OutcomeCommitted)
}

func TestNotMigrated(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	e.Exec(`DROP TABLE txsvc.transactions CASCADE`) // and the view of it
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("orders", "tx-1", pgtest.Order)), txn.CodeDatabaseUnavailable, "txsvc migrate up")
}
