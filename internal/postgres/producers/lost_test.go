package producers_test

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// self is the prefix of the process.
const self = "0A000001000111111111"

// tracked commits an attempt whose row is tracked.
func tracked(e *pgtest.Env, id string) *txn.Attempt {
	e.T.Helper()
	a := pgtest.Attempt("orders", id, pgtest.Order)
	a.CreatedAt = e.Store.Begin()
	a.Half.UniqKey = self + a.Half.UniqKey[20:]
	a.Message.UniqKey = a.Half.UniqKey
	pgtest.WantKind(e.T, e.Store.Run(e.T.Context(), a), txn.OutcomeCommitted)
	if got := pgtest.Value[string](e, `SELECT delivery FROM txsvc.transactions WHERE id = $1`, id); got != "tracked" {
		e.T.Fatalf("the row of %s is %s, want tracked", id, got)
	}
	return a
}

func registered(t *testing.T) *pgtest.Env {
	t.Helper()
	e := pgtest.New(t)
	if err := e.Store.Register(t.Context(), self); err != nil {
		t.Fatal(err)
	}
	return e
}

// A database that has lost the last commits has lost what was handed over as well, while this process believes that it is there. No
// later watermark may pass such a row.
func TestDatabaseLosesTheLastCommits(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(e *pgtest.Env, a *txn.Attempt){
		"handed over": func(e *pgtest.Env, a *txn.Attempt) { e.Store.HandOver(a.CreatedAt) },
		"lease given back": func(e *pgtest.Env, a *txn.Attempt) {
			if err := e.Store.Release(e.T.Context(), txn.Lease{ID: a.Request.ID, Epoch: 1}); err != nil {
				e.T.Fatal(err)
			}
			e.Store.HandOver(a.CreatedAt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := registered(t)
			flush := func() {
				t.Helper()
				if err := e.Store.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			gone := tracked(e, "tx-1") // its END_TRANSACTION has no answer
			tracked(e, "tx-2")
			e.Store.MarkDelivered("tx-2", time.Now(), false)
			e.Exec(`CREATE TABLE before AS SELECT * FROM txsvc.producers; CREATE TABLE rows_before AS SELECT * FROM txsvc.transactions`)
			leave(e, gone)
			flush()
			e.Exec(`DELETE FROM txsvc.producers; INSERT INTO txsvc.producers SELECT * FROM before;
				DELETE FROM txsvc.transactions; INSERT INTO txsvc.transactions SELECT * FROM rows_before; DELETE FROM txsvc.visible`)
			for range 3 {
				flush()
			}
			if got := e.Find("tx-1"); got.Delivery != txn.DeliveryPending {
				t.Errorf("the message that was handed over is %s, want pending", got.Delivery)
			}
			e.Exec(`UPDATE txsvc.transactions SET lease_until = now()`)
			claims, err := e.Store.ClaimDue(t.Context(), []string{"broker-a"}, 10)
			if err != nil || len(claims) != 2 { // tx-2 too: nothing is known of it any more
				t.Errorf("claimed: got %d, %v, want both", len(claims), err)
			}
		})
	}
	t.Run("the process's entry, too", func(t *testing.T) {
		t.Parallel()
		e := registered(t)
		a := tracked(e, "tx-1")
		e.Store.HandOver(a.CreatedAt)
		if err := e.Store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.Exec(`UPDATE txsvc.transactions SET delivery = 'tracked'; DELETE FROM txsvc.producers`)
		if err := e.Store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := e.Find("tx-1"); got.Delivery != txn.DeliveryPending {
			t.Errorf("got %s, want pending", got.Delivery)
		}
	})
}
