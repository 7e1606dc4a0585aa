package localtx_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// broken is a store behind a proxy, with warm connections, and attempts whose next request ends in COMMIT.
type broken struct {
	*pgtest.Env
	proxy *pgtest.Proxy
}

func newBroken(t *testing.T) broken {
	t.Helper()
	p := pgtest.NewProxy(t)
	b := broken{proxy: p}
	// The handler's last request before COMMIT is done when it returns: that is when the network breaks.
	late := pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		result, err := noteHandler(ctx, tx, in)
		if in.ID != "warm" {
			p.Strike()
		}
		return result, err
	})
	b.Env = pgtest.New(t, pgtest.WithURL(p.Through), pgtest.WithTables(notes), pgtest.WithProgram("sql", noteSQL), pgtest.WithProgram("handler", late))
	for _, kind := range []string{"orders", "sql", "handler"} {
		a := pgtest.Attempt(kind, "warm", pgtest.Order)
		pgtest.WantKind(t, b.Store.Run(t.Context(), a), txn.OutcomeCommitted)
		b.Exec(`DELETE FROM txsvc.transactions; DELETE FROM notes; DELETE FROM orders`)
	}
	return b
}

// run runs the attempt with the action at the request that holds its COMMIT.
func (b broken) run(a *txn.Attempt, act pgtest.Action) txn.Outcome {
	b.proxy.Plan(act)
	if a.Kind.Name != "handler" {
		b.proxy.Strike()
	}
	return b.Store.Run(context.Background(), a)
}

var programs = []string{"orders", "sql", "handler"}

func TestReplyToCommitLost(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	for _, kind := range programs {
		a := pgtest.Attempt(kind, "tx-"+kind, pgtest.Order)
		o := b.run(a, pgtest.CutAfter)
		pgtest.Wait(t, "cut", b.proxy.Struck())
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
		if diff := cmp.Diff(b.Find(a.Request.ID), o.Transaction); diff != "" {
			t.Errorf("%s: (-found +outcome):\n%s", kind, diff)
		}
		if o.Lease.ID != a.Request.ID || o.Lease.Epoch != 1 || time.Until(o.Lease.WriteBefore) > txn.DefaultTiming().WriteWithin {
			t.Errorf("%s: lease: got %+v", kind, o.Lease)
		}
		wantRow(b.Env, a, o.Transaction)
	}
}

func TestCommitNeverArrives(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	for _, kind := range programs {
		a := pgtest.Attempt(kind, "tx-"+kind, pgtest.Order)
		pgtest.WantFailed(t, b.run(a, pgtest.CutBefore), txn.CodeDatabaseUnavailable, "nothing was changed")
		pgtest.Wait(t, "cut", b.proxy.Struck())
		resolution, _ := b.Decide(a)
		pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
		pgtest.WantKind(t, b.Store.Run(t.Context(), pgtest.SameRequest(a)), txn.OutcomeCommitted)
	}
	if n := b.Count("orders") + b.Count("notes"); n != len(programs) {
		t.Errorf("got %d business rows, want %d", n, len(programs))
	}
}

// The network falls silent after COMMIT has left: the answer is "unknown", and a check-back finds out later.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act  pgtest.Action
		want txn.Resolution
	}{"executed": {pgtest.Mute, txn.ResolutionCommit}, "lost": {pgtest.Hold, txn.ResolutionRollback}} {
		for _, kind := range programs {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBroken(t)
				a := pgtest.Attempt(kind, "tx-1", pgtest.Order, 300*time.Millisecond)
				start := time.Now()
				o := b.run(a, tt.act)
				pgtest.WantKind(t, o, txn.OutcomeUnknown)
				if took := time.Since(start); o.Err == nil || took > 7*time.Second {
					t.Errorf("got %v after %s", o.Err, took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if resolution, _, err := b.Store.Decide(ctx, a.Message, a.Half); err == nil {
					t.Errorf("Decide without the network: got %v", resolution)
				}
				b.proxy.Heal() // the server's side stays open: its own limits end the session
				await.True(t, pgtest.Patience, "resolution", func() bool {
					resolution, _, err := b.Store.Decide(t.Context(), a.Message, a.Half)
					return err == nil && resolution == tt.want
				})
			})
		}
	}
}

// The request with COMMIT is still under way in the network when its half message is told to roll back. When it arrives
// at last, PostgreSQL refuses it.
func TestCommitArrivesAfterTheFence(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"orders", "sql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t)
			a := pgtest.Attempt(kind, "tx-1", pgtest.Order, 300*time.Millisecond)
			pgtest.WantKind(t, b.run(a, pgtest.Hold), txn.OutcomeUnknown)
			b.proxy.Heal()
			resolution, _ := b.Decide(a)
			pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
			b.proxy.Release()
			resolution, row := b.Decide(a)
			pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
			if !row.Abandoned || b.Count("orders")+b.Count("notes") != 0 {
				t.Errorf("committed after it was told to roll back: %+v", row)
			}
		})
	}
}
