package localtx_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"
)

// broken is a store behind a proxy, with warm connections, and attempts whose next request ends in COMMIT.
type broken struct {
	*env
	proxy *proxy
}

func newBroken(t *testing.T) broken {
	t.Helper()
	p := newProxy(t)
	b := broken{proxy: p}
	// The handler's last request before COMMIT is done when it returns: that is when the network breaks.
	late := handler(func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
		result, err := noteHandler(ctx, tx, in)
		if in.ID != "warm" {
			p.mu.Lock()
			p.action, p.planned = p.planned, actNothing
			p.mu.Unlock()
		}
		return result, err
	})
	b.env = setup(t, withURL(p.through), withTables(notes), withProgram("sql", noteSQL), withProgram("handler", late))
	for _, kind := range []string{"orders", "sql", "handler"} {
		a := attempt(kind, "warm", order)
		wantKind(t, b.store.Run(t.Context(), a), txn.OutcomeCommitted)
		b.exec(`DELETE FROM txsvc.transactions; DELETE FROM notes; DELETE FROM orders`)
	}
	return b
}

// run runs the attempt with the action at the request that holds its COMMIT.
func (b broken) run(a *txn.Attempt, act action) txn.Outcome {
	b.proxy.mu.Lock()
	b.proxy.struck = make(chan struct{})
	b.proxy.planned = act
	if a.Kind.Name != "handler" {
		b.proxy.action = act
	}
	b.proxy.mu.Unlock()
	return b.store.Run(context.Background(), a)
}

var programs = []string{"orders", "sql", "handler"}

func TestReplyToCommitLost(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	for _, kind := range programs {
		a := attempt(kind, "tx-"+kind, order)
		o := b.run(a, actCutAfter)
		wait(t, "cut", b.proxy.struck)
		wantKind(t, o, txn.OutcomeCommitted)
		if diff := cmp.Diff(b.find(a.Request.ID), o.Transaction); diff != "" {
			t.Errorf("%s: (-found +outcome):\n%s", kind, diff)
		}
		if o.Lease.ID != a.Request.ID || o.Lease.Epoch != 1 || time.Until(o.Lease.WriteBefore) > txn.DefaultTiming().WriteWithin {
			t.Errorf("%s: lease: got %+v", kind, o.Lease)
		}
		wantRow(b.env, a, o.Transaction)
	}
}

func TestCommitNeverArrives(t *testing.T) {
	t.Parallel()
	b := newBroken(t)
	for _, kind := range programs {
		a := attempt(kind, "tx-"+kind, order)
		wantFailed(t, b.run(a, actCutBefore), txn.CodeDatabaseUnavailable, "nothing was changed")
		wait(t, "cut", b.proxy.struck)
		verdict, _ := b.decide(a)
		wantVerdict(t, verdict, txn.ResolutionRollback)
		wantKind(t, b.store.Run(t.Context(), sameRequest(a)), txn.OutcomeCommitted)
	}
	if n := b.count("orders") + b.count("notes"); n != len(programs) {
		t.Errorf("got %d business rows, want %d", n, len(programs))
	}
}

// The network falls silent after COMMIT has left: the answer is "unknown", and a check-back finds out later.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act  action
		want txn.Resolution
	}{"executed": {actMute, txn.ResolutionCommit}, "lost": {actHold, txn.ResolutionRollback}} {
		for _, kind := range programs {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBroken(t)
				a := attempt(kind, "tx-1", order, 300*time.Millisecond)
				start := time.Now()
				o := b.run(a, tt.act)
				wantKind(t, o, txn.OutcomeUnknown)
				if took := time.Since(start); o.Err == nil || took > 7*time.Second {
					t.Errorf("got %v after %s", o.Err, took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if verdict, _, err := b.store.Decide(ctx, a.Message, a.Half); err == nil {
					t.Errorf("Decide without the network: got %v", verdict)
				}
				b.proxy.heal() // the server's side stays open: its own limits end the session
				await.True(t, patience, "verdict", func() bool {
					verdict, _, err := b.store.Decide(t.Context(), a.Message, a.Half)
					return err == nil && verdict == tt.want
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
			a := attempt(kind, "tx-1", order, 300*time.Millisecond)
			wantKind(t, b.run(a, actHold), txn.OutcomeUnknown)
			b.proxy.heal()
			verdict, _ := b.decide(a)
			wantVerdict(t, verdict, txn.ResolutionRollback)
			b.proxy.release()
			verdict, row := b.decide(a)
			wantVerdict(t, verdict, txn.ResolutionRollback)
			if !row.Abandoned || b.count("orders")+b.count("notes") != 0 {
				t.Errorf("committed after it was told to roll back: %+v", row)
			}
		})
	}
}
