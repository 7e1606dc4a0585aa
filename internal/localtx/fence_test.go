package localtx_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// P7: a half message that was answered "rollback" never commits; another attempt with the id does.
func TestFence(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("sql", noteSQL), pgtest.WithProgram("handler", noteHandler))
	for i, kind := range []string{"orders", "sql", "handler"} {
		first := pgtest.Attempt(kind, "tx-"+kind, pgtest.Order)
		for range 2 { // a repeated check-back
			resolution, row := e.Decide(first)
			pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
			if !row.Abandoned || row.State != txn.StateRolledBack || row.Delivery != txn.DeliveryNone {
				t.Errorf("%s: fence: got %+v", kind, row)
			}
		}
		for range 2 {
			pgtest.WantFailed(t, e.Store.Run(t.Context(), first), txn.CodeDatabaseUnavailable, "given up")
		}
		second := pgtest.SameRequest(first) // orphaned, too
		resolution, _ := e.Decide(second)
		pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
		pgtest.WantFailed(t, e.Store.Run(t.Context(), second), txn.CodeDatabaseUnavailable, "given up")
		if got, want := e.Fenced("tx-"+kind), []string{first.Half.UniqKey, second.Half.UniqKey}; !slices.Equal(got, want) {
			t.Errorf("%s: fenced: got %v, want %v", kind, got, want)
		}

		third := pgtest.SameRequest(first)
		o := e.Store.Run(t.Context(), third)
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
		if diff := cmp.Diff(o.Transaction, e.Find("tx-"+kind)); diff != "" {
			t.Errorf("%s: Find differs (-outcome +found):\n%s", kind, diff)
		}
		if got := e.Fenced("tx-" + kind); len(got) != 2 {
			t.Errorf("%s: fenced after the commit: got %v", kind, got)
		}
		for _, late := range []*txn.Attempt{first, second} {
			pgtest.WantKind(t, e.Store.Run(t.Context(), late), txn.OutcomeTaken)
			resolution, _ := e.Decide(late)
			pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
		}
		resolution, _ = e.Decide(third)
		pgtest.WantResolution(t, resolution, txn.ResolutionCommit)
		if got := e.Count("orders") + e.Count("notes"); got != i+1 {
			t.Errorf("%s: got %d business rows, want %d", kind, got, i+1)
		}
		wantReplacedRow(e, third, o.Transaction)
	}
}

// wantReplacedRow: but for the fences, the row is that of an attempt that was the first.
func wantReplacedRow(e *pgtest.Env, a *txn.Attempt, o *txn.Transaction) {
	e.T.Helper()
	e.Exec(`UPDATE txsvc.transactions SET fenced = NULL WHERE id = $1`, a.Request.ID)
	wantRow(e, a, o)
}

// A refusal takes the place of a fence, and also of the one on its own half message: the local transaction may refuse
// just when a check-back comes, and the client is to learn why.
func TestFenceAndRejection(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.Gate), pgtest.WithProgram("rejects", pgtest.Statements(`INSERT INTO gate VALUES (-1)`)),
		pgtest.WithProgram("plans not to", pgtest.Planner(func(task.Input) (task.Plan, error) { return task.Plan{}, &txn.Rejection{Message: "no"} })))
	for _, kind := range []string{"rejects", "plans not to"} {
		first := pgtest.Attempt(kind, "tx-"+kind, `{}`)
		e.Decide(first)
		o := e.Store.Run(t.Context(), first)
		pgtest.WantKind(t, o, txn.OutcomeRejected)
		wantRefusedRow(e, first, o.Transaction)
		if got := e.Fenced(first.Request.ID); !slices.Equal(got, []string{first.Half.UniqKey}) {
			t.Errorf("fenced: got %v", got)
		}
	}
}

// The fence is first, the local transaction waits for it, and fails.
func TestRunWaitsForTheFence(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	for _, reopened := range []bool{false, true} {
		a := pgtest.Attempt("orders", fmt.Sprint("tx-", reopened), pgtest.Order)
		if reopened {
			e.Decide(pgtest.SameRequest(a))
		}
		tx, err := e.Side.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background()) //nolint:errcheck // committed below
		// What Decide writes, stopped before its COMMIT.
		if _, err := tx.Exec(t.Context(), `INSERT INTO txsvc.transactions (id, kind, state, delivery, abandoned, fenced, shard_key, topic, tag,
				broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset, created_at, decided_at)
			VALUES ($1, 'orders', 'rolled_back', 'none', true, ARRAY[$2::text], '', '', '', 'broker-a', 0, '', '', $2, 1, 1, now(), now())
			ON CONFLICT (id) DO UPDATE SET fenced = array_append(transactions.fenced, $2)`, a.Request.ID, a.Half.UniqKey); err != nil {
			t.Fatal(err)
		}
		done := e.InBackground(a)
		e.AwaitWaiters(1)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		pgtest.WantFailed(t, pgtest.Wait(t, "outcome", done), txn.CodeDatabaseUnavailable, "given up")
	}
	if n := e.Count("orders"); n != 0 {
		t.Errorf("got %d orders, want none", n)
	}
}
