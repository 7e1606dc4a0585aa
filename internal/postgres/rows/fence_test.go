package rows_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestDecideByTheRow(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.Gate), pgtest.WithProgram("rejects", pgtest.Statements(`INSERT INTO gate VALUES (-1)`)))
	a := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)
	resolution, row := e.Decide(a)
	pgtest.WantResolution(t, resolution, txn.ResolutionCommit)
	if diff := cmp.Diff(e.Find("tx-1"), row); diff != "" {
		t.Errorf("row (-found +decided):\n%s", diff)
	}
	resolution, _ = e.Decide(pgtest.SameRequest(a))
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	resolution, _ = e.Decide(a)
	pgtest.WantResolution(t, resolution, txn.ResolutionDelivered)
	if got := e.Fenced("tx-1"); len(got) > 0 {
		t.Errorf("a decided row was fenced: %v", got)
	}

	r := pgtest.Attempt("rejects", "tx-2", `{}`)
	pgtest.WantKind(t, e.Store.Run(t.Context(), r), txn.OutcomeRejected)
	resolution, _ = e.Decide(r)
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
	e.Exec(`UPDATE txsvc.transactions SET state = 'prepared', delivery = 'none' WHERE id = $1`, "tx-2")
	resolution, _ = e.Decide(r)
	pgtest.WantResolution(t, resolution, txn.ResolutionUndecided)
}

// While a local transaction commits whose row is there, a check-back finds nothing out, and soon; then the transaction commits.
func TestDecideWhileRunning(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.LateGate), pgtest.WithProgram("handler", pgtest.Each(`INSERT INTO late VALUES (1)`)), pgtest.WithProgram("planner", pgtest.Statements(`INSERT INTO late VALUES (1)`)))
	for _, kind := range []string{"handler", "planner"} {
		for _, reopened := range []bool{false, true} {
			a := pgtest.Attempt(kind, fmt.Sprint("tx-", kind, reopened), `{}`, time.Minute)
			if reopened {
				e.Decide(pgtest.SameRequest(a))
			}
			open := e.Lock(`SELECT FROM gate FOR UPDATE`)
			done := e.InBackground(a)
			e.AwaitWaiters(1)
			start := time.Now()
			resolution, row := e.Decide(a)
			pgtest.WantResolution(t, resolution, txn.ResolutionUndecided)
			if took := time.Since(start); row != nil || took > 3*time.Second {
				t.Errorf("got the row %+v after %s", row, took)
			}
			open()
			pgtest.WantKind(t, pgtest.Wait(t, "outcome", done), txn.OutcomeCommitted)
			resolution, _ = e.Decide(a)
			pgtest.WantResolution(t, resolution, txn.ResolutionCommit)
		}
	}
}

// The fence of a check-back waits for the local transaction, and what that ends with decides.
func TestDecideWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.LateGate), pgtest.WithProgram("commits", pgtest.Each(`INSERT INTO late VALUES (1)`)), pgtest.WithProgram("fails", pgtest.Each(`INSERT INTO late VALUES (0)`)))
	for kind, want := range map[string]txn.Resolution{"commits": txn.ResolutionCommit, "fails": txn.ResolutionRollback} {
		a := pgtest.Attempt(kind, "tx-"+kind, `{}`)
		open := e.Lock(`SELECT FROM gate FOR UPDATE`)
		done := e.InBackground(a)
		e.AwaitWaiters(1)
		decided := make(chan txn.Resolution, 1)
		go func() {
			resolution, _, _ := e.Store.Decide(context.Background(), a.Message, a.Half)
			decided <- resolution
		}()
		e.AwaitWaiters(2)
		open()
		pgtest.WantResolution(t, pgtest.Wait(t, "resolution", decided), want)
		pgtest.Wait(t, "outcome", done)
		if got := e.Fenced(a.Request.ID); (want == txn.ResolutionRollback) != slices.Contains(got, a.Half.UniqKey) {
			t.Errorf("%s: fenced: got %v", kind, got)
		}
	}
}

func TestDecideWithoutDatabase(t *testing.T) {
	t.Parallel()
	p := pgtest.NewProxy(t)
	e := pgtest.New(t, pgtest.WithURL(p.Through))
	p.Close()
	a := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	resolution, row, err := e.Store.Decide(t.Context(), a.Message, a.Half)
	if resolution != txn.ResolutionUndecided || row != nil || err == nil {
		t.Errorf("got %v, %v, %v", resolution, row, err)
	}
}

// A half message that is fenced by a row that is there already is fenced for as long as a new row would.
func TestFenceIsDecidedAgain(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	first := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	e.Decide(first)
	e.Exec(`UPDATE txsvc.transactions SET decided_at = decided_at - interval '8 days' WHERE id = $1`, "tx-1")
	second := pgtest.SameRequest(first)
	resolution, _ := e.Decide(second)
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
	if age := pgtest.Value[time.Duration](e, `SELECT now() - decided_at FROM txsvc.transactions WHERE id = $1`, "tx-1"); age > time.Hour {
		t.Errorf("the row was decided %s ago, although it has fenced a half message now", age)
	}
	if got, want := e.Fenced("tx-1"), []string{first.Message.UniqKey, second.Message.UniqKey}; !slices.Equal(got, want) {
		t.Errorf("fenced: got %v, want %v", got, want)
	}
}
