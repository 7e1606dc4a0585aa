package localtx_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/txn"
)

func fenced(e *env, id string) []string {
	e.t.Helper()
	return value[[]string](e, `SELECT coalesce(fenced, '{}') FROM txsvc.transactions WHERE id = $1`, id)
}

func TestDecideByTheRow(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(gate), withProgram("rejects", statements(`INSERT INTO gate VALUES (-1)`)))
	a := attempt("orders", "tx-1", order)
	wantKind(t, e.store.Run(t.Context(), a), txn.OutcomeCommitted)
	verdict, row := e.decide(a)
	wantVerdict(t, verdict, txn.ResolutionCommit)
	if diff := cmp.Diff(e.find("tx-1"), row); diff != "" {
		t.Errorf("row (-found +decided):\n%s", diff)
	}
	verdict, _ = e.decide(sameRequest(a))
	wantVerdict(t, verdict, txn.ResolutionRollback)
	e.store.MarkDelivered("tx-1", time.Now(), false)
	verdict, _ = e.decide(a)
	wantVerdict(t, verdict, txn.ResolutionDelivered)
	if got := fenced(e, "tx-1"); len(got) > 0 {
		t.Errorf("a decided row was fenced: %v", got)
	}

	r := attempt("rejects", "tx-2", `{}`)
	wantKind(t, e.store.Run(t.Context(), r), txn.OutcomeRejected)
	verdict, _ = e.decide(r)
	wantVerdict(t, verdict, txn.ResolutionRollback)
	e.exec(`UPDATE txsvc.transactions SET state = 'prepared', delivery = 'none' WHERE id = $1`, "tx-2")
	verdict, _ = e.decide(r)
	wantVerdict(t, verdict, txn.ResolutionUndecided)
}

// P7: a half message that was answered "rollback" never commits; another attempt with the id does.
func TestFence(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(notes), withProgram("sql", noteSQL), withProgram("handler", noteHandler))
	for i, kind := range []string{"orders", "sql", "handler"} {
		first := attempt(kind, "tx-"+kind, order)
		for range 2 { // a repeated check-back
			verdict, row := e.decide(first)
			wantVerdict(t, verdict, txn.ResolutionRollback)
			if !row.Abandoned || row.State != txn.StateRolledBack || row.Delivery != txn.DeliveryNone {
				t.Errorf("%s: fence: got %+v", kind, row)
			}
		}
		for range 2 {
			wantFailed(t, e.store.Run(t.Context(), first), txn.CodeDatabaseUnavailable, "given up")
		}
		second := sameRequest(first) // orphaned, too
		verdict, _ := e.decide(second)
		wantVerdict(t, verdict, txn.ResolutionRollback)
		wantFailed(t, e.store.Run(t.Context(), second), txn.CodeDatabaseUnavailable, "given up")
		if got, want := fenced(e, "tx-"+kind), []string{first.Half.UniqKey, second.Half.UniqKey}; !slices.Equal(got, want) {
			t.Errorf("%s: fenced: got %v, want %v", kind, got, want)
		}

		third := sameRequest(first)
		o := e.store.Run(t.Context(), third)
		wantKind(t, o, txn.OutcomeCommitted)
		if diff := cmp.Diff(o.Transaction, e.find("tx-"+kind)); diff != "" {
			t.Errorf("%s: Find differs (-outcome +found):\n%s", kind, diff)
		}
		if got := fenced(e, "tx-"+kind); len(got) != 2 {
			t.Errorf("%s: fenced after the commit: got %v", kind, got)
		}
		for _, late := range []*txn.Attempt{first, second} {
			wantKind(t, e.store.Run(t.Context(), late), txn.OutcomeTaken)
			verdict, _ := e.decide(late)
			wantVerdict(t, verdict, txn.ResolutionRollback)
		}
		verdict, _ = e.decide(third)
		wantVerdict(t, verdict, txn.ResolutionCommit)
		if got := e.count("orders") + e.count("notes"); got != i+1 {
			t.Errorf("%s: got %d business rows, want %d", kind, got, i+1)
		}
		wantReplacedRow(e, third, o.Transaction)
	}
}

// wantReplacedRow: but for the fences, the row is that of an attempt that was the first.
func wantReplacedRow(e *env, a *txn.Attempt, o *txn.Transaction) {
	e.t.Helper()
	e.exec(`UPDATE txsvc.transactions SET fenced = NULL WHERE id = $1`, a.Request.ID)
	wantRow(e, a, o)
}

// A refusal takes the place of a fence, and also of the one on its own half message: the local transaction may refuse
// just when a check-back comes, and the client is to learn why.
func TestFenceAndRejection(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(gate), withProgram("rejects", statements(`INSERT INTO gate VALUES (-1)`)),
		withProgram("plans not to", planner(func(localtx.Input) (localtx.Plan, error) { return localtx.Plan{}, &txn.Rejection{Message: "no"} })))
	for _, kind := range []string{"rejects", "plans not to"} {
		first := attempt(kind, "tx-"+kind, `{}`)
		e.decide(first)
		a := first
		if kind == "rejects" {
			wantFailed(t, e.store.Run(t.Context(), first), txn.CodeDatabaseUnavailable, "given up")
			a = sameRequest(first)
		}
		o := e.store.Run(t.Context(), a)
		wantKind(t, o, txn.OutcomeRejected)
		wantRefusedRow(e, a, o.Transaction)
		if got := fenced(e, a.Request.ID); !slices.Equal(got, []string{first.Half.UniqKey}) {
			t.Errorf("fenced: got %v", got)
		}
	}
}

// While the local transaction runs, a check-back finds nothing out, and soon; then the transaction commits.
func TestDecideWhileRunning(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(gate), withProgram("handler", each(`SELECT FROM gate FOR UPDATE`)), withProgram("planner", statements(`SELECT FROM gate FOR UPDATE`)))
	for _, kind := range []string{"handler", "planner"} {
		for _, reopened := range []bool{false, true} {
			a := attempt(kind, fmt.Sprint("tx-", kind, reopened), `{}`, time.Minute)
			if reopened {
				e.decide(sameRequest(a))
			}
			open := e.lock(`SELECT FROM gate FOR UPDATE`)
			done := e.inBackground(a)
			e.awaitWaiters(1)
			start := time.Now()
			verdict, row := e.decide(a)
			wantVerdict(t, verdict, txn.ResolutionUndecided)
			if took := time.Since(start); row != nil || took > 3*time.Second {
				t.Errorf("got the row %+v after %s", row, took)
			}
			open()
			wantKind(t, wait(t, "outcome", done), txn.OutcomeCommitted)
			verdict, _ = e.decide(a)
			wantVerdict(t, verdict, txn.ResolutionCommit)
		}
	}
}

// The fence of a check-back waits for the local transaction, and what that ends with decides.
func TestDecideWaitsForTheEnd(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(gate), withProgram("commits", each(`SELECT FROM gate FOR UPDATE`)), withProgram("fails", each(`SELECT FROM gate FOR UPDATE`, `SELECT 1/0 FROM nowhere`)))
	for kind, want := range map[string]txn.Resolution{"commits": txn.ResolutionCommit, "fails": txn.ResolutionRollback} {
		a := attempt(kind, "tx-"+kind, `{}`)
		open := e.lock(`SELECT FROM gate FOR UPDATE`)
		done := e.inBackground(a)
		e.awaitWaiters(1)
		decided := make(chan txn.Resolution, 1)
		go func() {
			verdict, _, _ := e.store.Decide(context.Background(), a.Message, a.Half)
			decided <- verdict
		}()
		e.awaitWaiters(2)
		open()
		wantVerdict(t, wait(t, "verdict", decided), want)
		wait(t, "outcome", done)
		if got := fenced(e, a.Request.ID); (want == txn.ResolutionRollback) != slices.Contains(got, a.Half.UniqKey) {
			t.Errorf("%s: fenced: got %v", kind, got)
		}
	}
}

// The fence is first, the local transaction waits for it, and fails.
func TestRunWaitsForTheFence(t *testing.T) {
	t.Parallel()
	e := setup(t)
	for _, reopened := range []bool{false, true} {
		a := attempt("orders", fmt.Sprint("tx-", reopened), order)
		if reopened {
			e.decide(sameRequest(a))
		}
		tx, err := e.side.Begin(t.Context())
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
		done := e.inBackground(a)
		e.awaitWaiters(1)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantFailed(t, wait(t, "outcome", done), txn.CodeDatabaseUnavailable, "given up")
	}
	if n := e.count("orders"); n != 0 {
		t.Errorf("got %d orders, want none", n)
	}
}

func TestDecideWithoutDatabase(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	e := setup(t, withURL(p.through))
	p.close()
	a := attempt("orders", "tx-1", order)
	verdict, row, err := e.store.Decide(t.Context(), a.Message, a.Half)
	if verdict != txn.ResolutionUndecided || row != nil || err == nil {
		t.Errorf("got %v, %v, %v", verdict, row, err)
	}
}
