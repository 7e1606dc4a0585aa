package localtx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// standbyEnv is a store on a database with a synchronous standby.
type standbyEnv struct {
	*env
	primary, standby *devstack.Server
}

func newStandbyEnv(t *testing.T) standbyEnv {
	t.Helper()
	s := stacktest.Private(t, devstack.Options{DatabaseOnly: true})
	standby, err := s.Standby()
	if err != nil {
		t.Fatal(err)
	}
	p := standbyEnv{env: setupAt(t, s.EitherURL()), primary: s.Server(), standby: standby}
	if err := standby.Follow(t.Context(), p.primary); err != nil {
		t.Fatal(err)
	}
	if err := p.primary.WaitForStandby(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.awaitConfirming(true)
	return p
}

func (p standbyEnv) awaitConfirming(want bool) {
	p.t.Helper()
	await.True(p.t, patience, "confirmation by the standby", func() bool {
		waits, err := p.store.Confirming(p.t.Context())
		return waits && (err == nil) == want
	})
}

// another is the store of another replica.
func (p standbyEnv) another() *store {
	p.t.Helper()
	return newStore(p.t, p.url, options{timing: txn.DefaultTiming(), programs: map[string]localtx.Program{"orders": ordersProgram{}}})
}

// waiting are sessions in which the COMMIT of a local transaction waits for the standby.
const waiting = `pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'COMMIT%'`

func (p standbyEnv) awaitWaiting(n int) {
	p.t.Helper()
	await.True(p.t, patience, "COMMIT that waits", func() bool { return p.count(waiting) == n })
}

// A row is seen although no standby has confirmed it, when the wait for it was cancelled. It is taken for one whose outcome is
// not known until a later write of one's own is confirmed; and a COMMIT that waits is never cancelled.
func TestNothingIsActedOnBeforeStandbysConfirmIt(t *testing.T) {
	t.Parallel()
	p := newStandbyEnv(t)
	confirmed := attempt("orders", "confirmed", order)
	wantKind(t, p.store.Run(t.Context(), confirmed), txn.OutcomeCommitted)

	p.standby.Kill()
	cancelled := attempt("orders", "cancelled", order)
	outcome := p.inBackground(cancelled)
	p.awaitWaiting(1)
	p.exec(`SELECT pg_cancel_backend(pid) FROM ` + waiting)
	wantKind(t, wait(t, "outcome", outcome), txn.OutcomeUnknown)
	p.wantUnconfirmed(cancelled)

	// A claim whose own wait was cancelled is none.
	other := p.another()
	claimed := make(chan bool, 1)
	go func() {
		_, ok, err := other.ClaimOne(context.Background(), "cancelled", cancelled.Half.UniqKey)
		claimed <- ok || err == nil
	}()
	await.True(t, patience, "claim that waits", func() bool {
		return p.count(`(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'WITH due%') AS cancelled`) > 0
	})
	if wait(t, "claim", claimed) {
		t.Error("claimed, and not confirmed")
	}

	// Given up with its request, and not by the server.
	left := attempt("orders", "left", order, 2*time.Second)
	wantKind(t, p.store.Run(t.Context(), left), txn.OutcomeUnknown)
	p.awaitConfirming(false)
	// Nor by the server when the process stops.
	stopping := p.another()
	stop := attempt("orders", "stop", order, 2*time.Second)
	wantKind(t, stopping.Run(t.Context(), stop), txn.OutcomeUnknown)
	stopping.Close()
	p.awaitConfirming(false)
	for _, a := range []*txn.Attempt{left, stop} {
		if _, err := p.store.Find(t.Context(), a.Request.ID); !errors.Is(err, txn.ErrNotFound) {
			t.Errorf("%s is seen, so its COMMIT was cancelled: %v", a.Request.ID, err)
		}
	}

	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitConfirming(true)
	for _, a := range []*txn.Attempt{confirmed, cancelled, left, stop} {
		await.True(t, patience, "row of "+a.Request.ID, func() bool {
			found, err := p.store.Find(t.Context(), a.Request.ID)
			return err == nil && found.State == txn.StateCommitted
		})
		verdict, _ := p.decide(a)
		wantVerdict(t, verdict, txn.ResolutionCommit)
	}

	// What the standby does not have when it takes over never was.
	p.standby.Kill()
	lost := attempt("orders", "lost", order, 2*time.Second)
	wantKind(t, p.store.Run(t.Context(), lost), txn.OutcomeUnknown)
	seen := attempt("orders", "seen", order)
	outcome = p.inBackground(seen)
	p.awaitWaiting(2)
	p.exec(`SELECT pg_terminate_backend(pid) FROM ` + waiting)
	wantKind(t, wait(t, "outcome", outcome), txn.OutcomeUnknown)
	p.wantUnconfirmed(seen)
	p.primary.Kill()
	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*txn.Attempt{lost, seen} {
		await.True(t, patience, "verdict on "+a.Request.ID, func() bool {
			verdict, row, err := p.store.Decide(t.Context(), a.Message, a.Half)
			return err == nil && verdict == txn.ResolutionRollback && row.Abandoned
		})
		wantKind(t, p.store.Run(t.Context(), sameRequest(a)), txn.OutcomeCommitted)
	}
	if found := p.find("confirmed"); found.State != txn.StateCommitted {
		t.Errorf("got state %s of what was confirmed", found.State)
	}
}

// wantUnconfirmed looks at a row that is seen and not confirmed, in all ways in which somebody might act on it.
func (p standbyEnv) wantUnconfirmed(a *txn.Attempt) {
	p.t.Helper()
	ctx, id := p.t.Context(), a.Request.ID
	if p.count(`txsvc.transactions WHERE id = $1 AND state = 'committed'`, id) != 1 {
		p.t.Fatalf("the row of %s is not seen: nothing is shown", id)
	}
	if found := p.find(id); found.State != txn.StateUnknown || found.Delivery != txn.DeliveryNone || found.Result != nil || !found.DecidedAt.IsZero() {
		p.t.Errorf("found %+v", found)
	}
	if verdict, row, err := p.store.Decide(ctx, a.Message, a.Half); err == nil && (verdict != txn.ResolutionUndecided || row != nil && row.State == txn.StateCommitted) {
		p.t.Errorf("verdict: got %v, %+v", verdict, row)
	}
	if o := p.store.Run(ctx, sameRequest(a)); o.Kind == txn.OutcomeTaken && o.Transaction.State != txn.StateUnknown || o.Kind == txn.OutcomeCommitted {
		p.t.Errorf("the same request again: got %s, %+v", outcomeNames[o.Kind], o.Transaction)
	}
	p.exec(`BEGIN; SET LOCAL synchronous_commit TO local; UPDATE txsvc.transactions SET lease_until = now() WHERE id = '` + id + `'; COMMIT`)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, ok, err := p.store.ClaimOne(short, id, a.Half.UniqKey); ok || err == nil {
		p.t.Errorf("claimed: %t, %v", ok, err)
	}
}
