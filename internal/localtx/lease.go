package localtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

// Renew extends a lease that did not end yet; see txn.Store.
func (s *Store) Renew(ctx context.Context, lease txn.Lease) (txn.Lease, bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	start := time.Now()
	tag, err := s.exec(ctx, `UPDATE txsvc.transactions SET lease_until = clock_timestamp() + $3::interval
		WHERE id = $1 AND lease_epoch = $2 AND delivery = 'pending' AND lease_until > clock_timestamp()`,
		lease.ID, lease.Epoch, s.timing.Lease())
	if err != nil {
		return lease, false, fmt.Errorf("renewing the lease on transaction %s: %w", lease.ID, err)
	}
	lease.WriteBefore = start.Add(s.timing.WriteWithin)
	return lease, tag.RowsAffected() == 1, nil
}

// Release gives a lease back; see txn.Store.
func (s *Store) Release(ctx context.Context, lease txn.Lease) error {
	return s.Defer(ctx, lease, 0, "")
}

// Defer gives a lease back and keeps others from claiming the row for the given time. The holder must have nothing under
// way that the broker could still execute.
func (s *Store) Defer(ctx context.Context, lease txn.Lease, wait time.Duration, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.exec(ctx, `UPDATE txsvc.transactions SET lease_until = clock_timestamp() + $3::interval, last_error = nullif($4, '')
		WHERE id = $1 AND lease_epoch = $2 AND delivery = 'pending'`, lease.ID, lease.Epoch, wait, reason)
	if err != nil {
		return fmt.Errorf("deferring transaction %s: %w", lease.ID, err)
	}
	return nil
}

// NoteWaiting says in up to limit pending rows of the broker that do not say so why they wait. Rows that somebody is
// working on are left alone.
func (s *Store) NoteWaiting(ctx context.Context, broker, reason string, limit int) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, `UPDATE txsvc.transactions SET last_error = $2 WHERE id IN (
			SELECT id FROM txsvc.transactions WHERE delivery = 'pending' AND broker = $1 AND last_error IS NULL AND lease_until <> 'infinity'
			ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED) AND delivery = 'pending'`, broker, reason, limit)
	if err != nil {
		return fmt.Errorf("noting what rows of broker %s wait for: %w", broker, err)
	}
	return nil
}

// giveBack is Defer for many rows. What was certainly not sent does not count as an attempt.
const giveBack = `UPDATE txsvc.transactions t SET lease_until = clock_timestamp() + $3::interval, attempts = t.attempts - 1,
		last_error = coalesce(nullif($4, ''), t.last_error)
	FROM unnest($1::text[], $2::bigint[]) AS l (id, epoch)
	WHERE t.id = l.id AND t.lease_epoch = l.epoch AND ` + isPending

// GiveBack is Defer for leases of which nothing was sent: the next holder may rely on that.
func (s *Store) GiveBack(ctx context.Context, leases []txn.Lease, wait time.Duration, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ids, epochs := make([]string, len(leases)), make([]int64, len(leases))
	for i, lease := range leases {
		ids[i], epochs[i] = lease.ID, lease.Epoch
	}
	if _, err := s.exec(ctx, giveBack, pgx.QueryExecModeCacheDescribe, ids, epochs, wait, reason); err != nil {
		return fmt.Errorf("giving %d leases back: %w", len(leases), err)
	}
	return nil
}

// Park gives a lease back and keeps everybody from the row, until Redeliver. Nothing may be under way.
func (s *Store) Park(ctx context.Context, lease txn.Lease, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.exec(ctx, `UPDATE txsvc.transactions SET lease_until = 'infinity', last_error = $3
		WHERE id = $1 AND lease_epoch = $2 AND delivery = 'pending'`, lease.ID, lease.Epoch, reason)
	if err != nil {
		return fmt.Errorf("parking transaction %s: %w", lease.ID, err)
	}
	return nil
}

// Redeliver makes a parked row due; see txn.Store. A row that is not parked is tried again anyway.
func (s *Store) Redeliver(ctx context.Context, id string) (*txn.Transaction, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.exec(ctx, `UPDATE txsvc.transactions SET lease_until = clock_timestamp(), last_error = NULL
		WHERE id = $1 AND delivery = 'pending' AND lease_until = 'infinity'`, id)
	if err != nil {
		return nil, fmt.Errorf("asking for transaction %s to be delivered: %w", id, err)
	}
	t, err := s.Find(ctx, id)
	if errors.Is(err, txn.ErrNotFound) { // deleted since the caller has read it, so it was delivered
		return nil, txn.Errorf(txn.CodeNotFound, "no transaction has this id")
	}
	return t, err
}
