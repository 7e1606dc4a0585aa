package localtx_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/postgres/retention"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestIDTaken(t *testing.T) {
	t.Parallel()
	e := setup(t)
	first := attempt("orders", "tx-1", order)
	committed := e.store.Run(t.Context(), first)
	wantKind(t, committed, txn.OutcomeCommitted)
	o := e.store.Run(t.Context(), sameRequest(first))
	wantKind(t, o, txn.OutcomeTaken)
	if diff := cmp.Diff(committed.Transaction, o.Transaction); diff != "" {
		t.Errorf("taken by (-first +got):\n%s", diff)
	}
	if n := e.count("orders"); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}

// A local transaction waits for a running one with its id, and then finds the id taken, or takes its place.
func TestIDRunning(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first []string
		want  txn.OutcomeKind
	}{
		{"that commits", []string{`SELECT FROM gate FOR UPDATE`}, txn.OutcomeTaken},
		{"that fails", []string{`SELECT FROM gate FOR UPDATE`, `SELECT 1 FROM nowhere`}, txn.OutcomeCommitted},
		{"that refuses", []string{`SELECT FROM gate FOR UPDATE`, `INSERT INTO gate VALUES (-1)`}, txn.OutcomeTaken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := setup(t, withTables(gate), withProgram("first", each(tt.first...)), withProgram("second", statements(`SELECT 1`)))
			open := e.lock(`SELECT FROM gate FOR UPDATE`)
			first := e.inBackground(attempt("first", "tx-1", `{}`))
			e.awaitWaiters(1)
			second := e.inBackground(attempt("second", "tx-1", `{}`))
			e.awaitWaiters(2)
			open()
			a := wait(t, "first outcome", first)
			b := wait(t, "second outcome", second)
			if tt.want == txn.OutcomeTaken && b.Kind == txn.OutcomeCommitted && a.Kind == txn.OutcomeTaken {
				return // the refusal is stored after the key is free: the other may come first
			}
			wantKind(t, b, tt.want)
			if n := e.count("txsvc.transactions"); n != 1 {
				t.Errorf("got %d rows, want 1", n)
			}
		})
	}
}

func TestIDRunningTooLong(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(gate), withProgram("gated", statements(`SELECT FROM gate FOR UPDATE`)))
	open := e.lock(`SELECT FROM gate FOR UPDATE`)
	e.connected(2) // a new connection may take longer than the timeout below
	first := e.inBackground(attempt("gated", "tx-1", `{}`, time.Minute))
	e.awaitWaiters(1)
	o := e.store.Run(t.Context(), attempt("gated", "tx-1", `{}`, 100*time.Millisecond))
	wantFailed(t, o, txn.CodeConflict, "still running")
	open()
	wantKind(t, wait(t, "first outcome", first), txn.OutcomeCommitted)
}

func TestOneIDInParallel(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(notes), withProgram("handler", noteHandler), withProgram("sql", noteSQL))
	for i, kind := range []string{"orders", "handler", "sql"} {
		id := "tx-" + kind
		outcomes := make([]txn.Outcome, 50)
		attempts := make([]*txn.Attempt, len(outcomes))
		var wg sync.WaitGroup
		for j := range outcomes {
			attempts[j] = attempt(kind, id, order)
			wg.Go(func() { outcomes[j] = e.store.Run(context.Background(), attempts[j]) })
		}
		wg.Wait()
		committed := 0
		for j, o := range outcomes {
			switch o.Kind {
			case txn.OutcomeCommitted:
				committed++
				if got := e.find(id).MessageID; got != attempts[j].Half.UniqKey {
					t.Errorf("%s: the row names half message %s, committed was %s", kind, got, attempts[j].Half.UniqKey)
				}
			case txn.OutcomeTaken:
				if diff := cmp.Diff(e.find(id), o.Transaction); diff != "" {
					t.Errorf("%s: taken by (-row +got):\n%s", kind, diff)
				}
			default:
				t.Errorf("%s: got %s: %v", kind, outcomeNames[o.Kind], o.Err)
			}
		}
		if committed != 1 || e.count("txsvc.transactions") != i+1 {
			t.Errorf("%s: %d committed, %d rows so far", kind, committed, e.count("txsvc.transactions"))
		}
	}
	if got := e.count("orders") + e.count("notes"); got != 3 {
		t.Errorf("got %d business rows, want 3", got)
	}
}

// After its row is gone, an id is as good as new: the idempotency window is the retention.
func TestIDAfterItsRetention(t *testing.T) {
	e := setup(t)
	first := e.store.Run(t.Context(), attempt("orders", "again", order))
	if first.Kind != txn.OutcomeCommitted {
		t.Fatal(first.Err)
	}
	e.exec(`UPDATE txsvc.transactions SET delivery = 'delivered', decided_at = now() - interval '8 days'`)
	e.exec(`DELETE FROM orders; DELETE FROM order_items`)
	sweeper := retention.New(e.store.DB, 7*24*time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	for stepped := true; stepped; {
		var err error
		if stepped, _, err = sweeper.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if second := e.store.Run(t.Context(), attempt("orders", "again", order)); second.Kind != txn.OutcomeCommitted {
		t.Errorf("got %s (%v), want committed", outcomeNames[second.Kind], second.Err)
	}
}
