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
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestIDTaken(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	first := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	committed := e.Store.Run(t.Context(), first)
	pgtest.WantKind(t, committed, txn.OutcomeCommitted)
	o := e.Store.Run(t.Context(), pgtest.SameRequest(first))
	pgtest.WantKind(t, o, txn.OutcomeTaken)
	if diff := cmp.Diff(committed.Transaction, o.Transaction); diff != "" {
		t.Errorf("taken by (-first +got):\n%s", diff)
	}
	if n := e.Count("orders"); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}

// A local transaction whose row meets that of a running one with its id waits for it, and then finds the id taken, or takes its place.
func TestIDRunning(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first string
		want  txn.OutcomeKind
	}{
		{"that commits", `INSERT INTO late VALUES (1)`, txn.OutcomeTaken},
		{"that fails", `INSERT INTO late VALUES (0)`, txn.OutcomeCommitted},
		{"that refuses", `INSERT INTO late VALUES (-1)`, txn.OutcomeTaken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := pgtest.New(t, pgtest.WithTables(pgtest.LateGate), pgtest.WithProgram("first", pgtest.Each(tt.first)), pgtest.WithProgram("second", pgtest.Statements(`SELECT 1`)))
			open := e.Lock(`SELECT FROM gate FOR UPDATE`)
			first := e.InBackground(pgtest.Attempt("first", "tx-1", `{}`))
			e.AwaitWaiters(1)
			second := e.InBackground(pgtest.Attempt("second", "tx-1", `{}`))
			e.AwaitWaiters(2)
			open()
			a := pgtest.Wait(t, "first outcome", first)
			b := pgtest.Wait(t, "second outcome", second)
			if tt.want == txn.OutcomeTaken && b.Kind == txn.OutcomeCommitted && a.Kind == txn.OutcomeTaken {
				return // the refusal is stored after the key is free: the other may come first
			}
			pgtest.WantKind(t, b, tt.want)
			if n := e.Count("txsvc.transactions"); n != 1 {
				t.Errorf("got %d rows, want 1", n)
			}
		})
	}
}

func TestIDRunningTooLong(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.LateGate), pgtest.WithProgram("gated", pgtest.Statements(`INSERT INTO late VALUES (1)`)))
	open := e.Lock(`SELECT FROM gate FOR UPDATE`)
	e.Connected(2) // a new connection may take longer than the timeout below
	first := e.InBackground(pgtest.Attempt("gated", "tx-1", `{}`, time.Minute))
	e.AwaitWaiters(1)
	o := e.Store.Run(t.Context(), pgtest.Attempt("gated", "tx-1", `{}`, 100*time.Millisecond))
	pgtest.WantFailed(t, o, txn.CodeConflict, "still running")
	open()
	pgtest.WantKind(t, pgtest.Wait(t, "first outcome", first), txn.OutcomeCommitted)
}

// The other attempt is at COMMIT. A statement of this one waits for what it has changed, before the row does.
func TestIDAtCommitTooLong(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.LateGate+`; CREATE TABLE once (id text PRIMARY KEY)`),
		pgtest.WithProgram("gated", pgtest.Statements(`INSERT INTO once VALUES ('x')`, `INSERT INTO late VALUES (1)`)))
	open := e.Lock(`SELECT FROM gate FOR UPDATE`)
	e.Connected(3)
	first := e.InBackground(pgtest.Attempt("gated", "tx-1", `{}`, time.Minute))
	e.AwaitWaiters(1)
	o := e.Store.Run(t.Context(), pgtest.Attempt("gated", "tx-1", `{}`, 100*time.Millisecond))
	pgtest.WantFailed(t, o, txn.CodeConflict, "still running")
	o = e.Store.Run(t.Context(), pgtest.Attempt("gated", "tx-2", `{}`, 100*time.Millisecond))
	pgtest.WantFailed(t, o, txn.CodeDatabaseUnavailable, "longer than its timeout")
	open()
	pgtest.WantKind(t, pgtest.Wait(t, "first outcome", first), txn.OutcomeCommitted)
	if n := e.Count("txsvc.transactions"); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
}

func TestOneIDInParallel(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("handler", noteHandler), pgtest.WithProgram("sql", noteSQL))
	for i, kind := range []string{"orders", "handler", "sql"} {
		id := "tx-" + kind
		outcomes := make([]txn.Outcome, 50)
		attempts := make([]*txn.Attempt, len(outcomes))
		var wg sync.WaitGroup
		for j := range outcomes {
			attempts[j] = pgtest.Attempt(kind, id, pgtest.Order)
			wg.Go(func() { outcomes[j] = e.Store.Run(context.Background(), attempts[j]) })
		}
		wg.Wait()
		committed := 0
		for j, o := range outcomes {
			switch o.Kind {
			case txn.OutcomeCommitted:
				committed++
				if got := e.Find(id).MessageID; got != attempts[j].Half.UniqKey {
					t.Errorf("%s: the row names half message %s, committed was %s", kind, got, attempts[j].Half.UniqKey)
				}
			case txn.OutcomeTaken:
				if diff := cmp.Diff(e.Find(id), o.Transaction); diff != "" {
					t.Errorf("%s: taken by (-row +got):\n%s", kind, diff)
				}
			default:
				t.Errorf("%s: got %s: %v", kind, pgtest.OutcomeNames[o.Kind], o.Err)
			}
		}
		if committed != 1 || e.Count("txsvc.transactions") != i+1 {
			t.Errorf("%s: %d committed, %d rows so far", kind, committed, e.Count("txsvc.transactions"))
		}
	}
	if got := e.Count("orders") + e.Count("notes"); got != 3 {
		t.Errorf("got %d business rows, want 3", got)
	}
}

// After its row is gone, an id is as good as new: the idempotency window is the retention.
func TestIDAfterItsRetention(t *testing.T) {
	e := pgtest.New(t)
	first := e.Store.Run(t.Context(), pgtest.Attempt("orders", "again", pgtest.Order))
	if first.Kind != txn.OutcomeCommitted {
		t.Fatal(first.Err)
	}
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'delivered', decided_at = now() - interval '8 days'`)
	e.Exec(`DELETE FROM orders; DELETE FROM order_items`)
	sweeper := retention.New(e.Store.DB, 7*24*time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	for stepped := true; stepped; {
		var err error
		if stepped, _, err = sweeper.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if second := e.Store.Run(t.Context(), pgtest.Attempt("orders", "again", pgtest.Order)); second.Kind != txn.OutcomeCommitted {
		t.Errorf("got %s (%v), want committed", pgtest.OutcomeNames[second.Kind], second.Err)
	}
}
