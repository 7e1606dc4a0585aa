package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// standbyEnv is a store on a database with a synchronous standby.
type standbyEnv struct {
	*pgtest.Env
	primary, standby *devstack.Server
}

func newStandbyEnv(t *testing.T) standbyEnv {
	t.Helper()
	s := stacktest.Private(t, devstack.Options{DatabaseOnly: true})
	standby, err := s.Standby()
	if err != nil {
		t.Fatal(err)
	}
	p := standbyEnv{Env: pgtest.NewAt(t, s.EitherURL()), primary: s.Server(), standby: standby}
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
	p.T.Helper()
	await.True(p.T, pgtest.Patience, "confirmation by the standby", func() bool {
		waits, err := p.Store.Confirming(p.T.Context())
		return waits && (err == nil) == want
	})
}

// waiting are sessions in which the COMMIT of a local transaction waits for the standby.
const waiting = `pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'COMMIT%'`

func (p standbyEnv) awaitWaiting(n int) {
	p.T.Helper()
	await.True(p.T, pgtest.Patience, "COMMIT that waits", func() bool { return p.Count(waiting) == n })
}

// A row is seen although no standby has confirmed it, when the wait for it was cancelled. It is taken for one whose outcome is
// not known until a later write of one's own is confirmed; and a COMMIT that waits is never cancelled.
func TestNothingIsActedOnBeforeStandbysConfirmIt(t *testing.T) {
	t.Parallel()
	p := newStandbyEnv(t)
	confirmed := pgtest.Attempt("orders", "confirmed", pgtest.Order)
	pgtest.WantKind(t, p.Store.Run(t.Context(), confirmed), txn.OutcomeCommitted)

	p.standby.Kill()
	cancelled := pgtest.Attempt("orders", "cancelled", pgtest.Order)
	outcome := p.InBackground(cancelled)
	p.awaitWaiting(1)
	p.Exec(`SELECT pg_cancel_backend(pid) FROM ` + waiting)
	pgtest.WantKind(t, pgtest.Wait(t, "outcome", outcome), txn.OutcomeUnknown)
	p.wantUnconfirmed(cancelled)

	// A claim whose own wait was cancelled is none.
	other := p.Another()
	claimed := make(chan bool, 1)
	go func() {
		_, ok, err := other.ClaimOne(context.Background(), "cancelled", cancelled.Half.UniqKey)
		claimed <- ok || err == nil
	}()
	await.True(t, pgtest.Patience, "claim that waits", func() bool {
		return p.Count(`(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'WITH due%') AS cancelled`) > 0
	})
	if pgtest.Wait(t, "claim", claimed) {
		t.Error("claimed, and not confirmed")
	}

	// Given up with its request, and not by the server.
	left := pgtest.Attempt("orders", "left", pgtest.Order, 2*time.Second)
	pgtest.WantKind(t, p.Store.Run(t.Context(), left), txn.OutcomeUnknown)
	p.awaitConfirming(false)
	// Nor by the server when the process stops.
	stopping := p.Another()
	stop := pgtest.Attempt("orders", "stop", pgtest.Order, 2*time.Second)
	pgtest.WantKind(t, stopping.Run(t.Context(), stop), txn.OutcomeUnknown)
	stopping.Close()
	p.awaitConfirming(false)
	for _, a := range []*txn.Attempt{left, stop} {
		if _, err := p.Store.Find(t.Context(), a.Request.ID); !errors.Is(err, txn.ErrNotFound) {
			t.Errorf("%s is seen, so its COMMIT was cancelled: %v", a.Request.ID, err)
		}
	}

	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitConfirming(true)
	for _, a := range []*txn.Attempt{confirmed, cancelled, left, stop} {
		await.True(t, pgtest.Patience, "row of "+a.Request.ID, func() bool {
			found, err := p.Store.Find(t.Context(), a.Request.ID)
			return err == nil && found.State == txn.StateCommitted
		})
		resolution, _ := p.Decide(a)
		pgtest.WantResolution(t, resolution, txn.ResolutionCommit)
	}

	// What the standby does not have when it takes over never was.
	p.standby.Kill()
	lost := pgtest.Attempt("orders", "lost", pgtest.Order, 2*time.Second)
	pgtest.WantKind(t, p.Store.Run(t.Context(), lost), txn.OutcomeUnknown)
	seen := pgtest.Attempt("orders", "seen", pgtest.Order)
	outcome = p.InBackground(seen)
	p.awaitWaiting(2)
	p.Exec(`SELECT pg_terminate_backend(pid) FROM ` + waiting)
	pgtest.WantKind(t, pgtest.Wait(t, "outcome", outcome), txn.OutcomeUnknown)
	p.wantUnconfirmed(seen)
	p.primary.Kill()
	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*txn.Attempt{lost, seen} {
		await.True(t, pgtest.Patience, "resolution on "+a.Request.ID, func() bool {
			resolution, row, err := p.Store.Decide(t.Context(), a.Message, a.Half)
			return err == nil && resolution == txn.ResolutionRollback && row.Abandoned
		})
		pgtest.WantKind(t, p.Store.Run(t.Context(), pgtest.SameRequest(a)), txn.OutcomeCommitted)
	}
	if found := p.Find("confirmed"); found.State != txn.StateCommitted {
		t.Errorf("got state %s of what was confirmed", found.State)
	}
}

// wantUnconfirmed looks at a row that is seen and not confirmed, in all ways in which somebody might act on it.
func (p standbyEnv) wantUnconfirmed(a *txn.Attempt) {
	p.T.Helper()
	ctx, id := p.T.Context(), a.Request.ID
	if p.Count(`txsvc.transactions WHERE id = $1 AND state = 'committed'`, id) != 1 {
		p.T.Fatalf("the row of %s is not seen: nothing is shown", id)
	}
	if found := p.Find(id); found.State != txn.StateUnknown || found.Delivery != txn.DeliveryNone || found.Result != nil || !found.DecidedAt.IsZero() {
		p.T.Errorf("found %+v", found)
	}
	if resolution, row, err := p.Store.Decide(ctx, a.Message, a.Half); err == nil && (resolution != txn.ResolutionUndecided || row != nil && row.State == txn.StateCommitted) {
		p.T.Errorf("resolution: got %v, %+v", resolution, row)
	}
	if o := p.Store.Run(ctx, pgtest.SameRequest(a)); o.Kind == txn.OutcomeTaken && o.Transaction.State != txn.StateUnknown || o.Kind == txn.OutcomeCommitted {
		p.T.Errorf("the same request again: got %s, %+v", pgtest.OutcomeNames[o.Kind], o.Transaction)
	}
	p.Exec(`BEGIN; SET LOCAL synchronous_commit TO local; UPDATE txsvc.transactions SET lease_until = now() WHERE id = '` + id + `'; COMMIT`)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, ok, err := p.Store.ClaimOne(short, id, a.Half.UniqKey); ok || err == nil {
		p.T.Errorf("claimed: %t, %v", ok, err)
	}
}
