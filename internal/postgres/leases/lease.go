package leases

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/txn"
)

// Leases is for the holders of leases: it extends and ends them. It is safe for concurrent use.
type Leases struct {
	db      *postgres.DB
	tracked *producers.Self
}

// New returns the leases of a database, which last as its timing says. With each of them that ends, its row is not tracked any
// more.
func New(db *postgres.DB, tracked *producers.Self) *Leases { return &Leases{db, tracked} }

// Renew extends a lease that did not end yet; see txn.Store.
func (s *Leases) Renew(ctx context.Context, lease txn.Lease) (txn.Lease, bool, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	start := time.Now()
	tag, err := s.db.Exec(ctx, renew, lease.ID, lease.Epoch, s.db.Timing().Lease())
	if err != nil {
		return lease, false, fmt.Errorf("renewing the lease on transaction %s: %w", lease.ID, err)
	}
	if tag.RowsAffected() == 1 { // else it may be tracked still
		s.tracked.HandOverRow(lease.ID)
	}
	lease.WriteBefore = start.Add(s.db.Timing().WriteWithin)
	return lease, tag.RowsAffected() == 1, nil
}

// over ends the tracking of rows whose leases were to end, whether or not the statement for that has succeeded.
func (s *Leases) over(ids ...string) {
	for _, id := range ids {
		s.tracked.HandOverRow(id)
	}
}

// Release gives a lease back; see txn.Store.
func (s *Leases) Release(ctx context.Context, lease txn.Lease) error {
	return s.Defer(ctx, lease, 0, "")
}

// Defer gives a lease back, and prevents others from claiming the row for the given time. The holder must have nothing
// under way that the broker could still execute.
func (s *Leases) Defer(ctx context.Context, lease txn.Lease, pause time.Duration, reason string) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	_, err := s.db.Exec(ctx, deferRow, lease.ID, lease.Epoch, pause, reason)
	s.over(lease.ID)
	if err != nil {
		return fmt.Errorf("deferring transaction %s: %w", lease.ID, err)
	}
	return nil
}

// GiveBack is Defer for leases of which nothing was sent: the next holder may rely on that.
func (s *Leases) GiveBack(ctx context.Context, leases []txn.Lease, pause time.Duration, reason string) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	ids, epochs := make([]string, len(leases)), make([]int64, len(leases))
	for i, lease := range leases {
		ids[i], epochs[i] = lease.ID, lease.Epoch
	}
	_, err := s.db.Exec(ctx, giveBack, planned, ids, epochs, pause, reason)
	s.over(ids...)
	if err != nil {
		return fmt.Errorf("giving %d leases back: %w", len(leases), err)
	}
	return nil
}

// Park gives a lease back, and prevents everybody from claiming the row until an operator asks for it. The holder must have
// nothing under way.
func (s *Leases) Park(ctx context.Context, lease txn.Lease, reason string) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	_, err := s.db.Exec(ctx, park, lease.ID, lease.Epoch, reason)
	s.over(lease.ID)
	if err != nil {
		return fmt.Errorf("parking transaction %s: %w", lease.ID, err)
	}
	return nil
}

// Reroute gives a pending row another queue, and the lease back: the row is then sent like one without a half message, under
// the UNIQ_KEY. It returns false when the lease was lost. The holder must have nothing under way.
func (s *Leases) Reroute(ctx context.Context, lease txn.Lease, route txn.Route, uniqKey, reason string) (bool, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	tag, err := s.db.Exec(ctx, reroute, pgx.NamedArgs{
		"id": lease.ID, "epoch": lease.Epoch, "broker": route.Queue.Broker, "queue_id": route.Queue.ID,
		"selector": rows.SelectorText(route), "reason": route.Reason, "uniq_key": uniqKey, "no_half": txn.NoHalf, "why": reason,
	})
	s.over(lease.ID)
	if err != nil {
		return false, fmt.Errorf("giving transaction %s another queue: %w", lease.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// NoteWaiting says, in up to limit pending rows of the broker that do not say so, why they wait.
func (s *Leases) NoteWaiting(ctx context.Context, broker, reason string, limit int) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	if _, err := s.db.Pool().Exec(ctx, noteWaiting, broker, reason, limit); err != nil {
		return fmt.Errorf("noting why rows of broker %s wait: %w", broker, err)
	}
	return nil
}
