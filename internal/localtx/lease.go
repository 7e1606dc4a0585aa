package localtx

import (
	"context"
	"encoding/json"
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
	tag, err := s.pool.Exec(ctx, `UPDATE txsvc.transactions SET lease_until = clock_timestamp() + $3::interval
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
	_, err := s.pool.Exec(ctx, `UPDATE txsvc.transactions SET lease_until = clock_timestamp() + $3::interval, last_error = nullif($4, '')
		WHERE id = $1 AND lease_epoch = $2 AND delivery = 'pending'`, lease.ID, lease.Epoch, wait, reason)
	if err != nil {
		return fmt.Errorf("deferring transaction %s: %w", lease.ID, err)
	}
	return nil
}

// claim leases the rows that the given query locks. The query stands in a WITH that is evaluated once: as a part of a
// join it could be run again, and lock more rows than its limit.
const claim = `WITH due AS MATERIALIZED (%s)
	UPDATE txsvc.transactions t
	SET lease_until = clock_timestamp() + $1::interval, lease_epoch = t.lease_epoch + 1, attempts = t.attempts + 1
	FROM due WHERE t.id = due.id
	RETURNING t.id, t.kind, t.shard_key, t.topic, t.tag, t.keys, t.properties, coalesce(t.traceparent, ''),
		t.broker, t.queue_id, t.uniq_key, t.commit_log_offset, t.queue_offset, t.body, t.created_at, t.lease_epoch, t.attempts,
		clock_timestamp() - due.lease_until`

var (
	claimDue = fmt.Sprintf(claim, `SELECT id, lease_until FROM txsvc.transactions
		WHERE delivery = 'pending' AND lease_until <= now() AND broker = ANY ($3) ORDER BY lease_until LIMIT $2 FOR UPDATE SKIP LOCKED`)
	claimOne = fmt.Sprintf(claim, `SELECT id, lease_until FROM txsvc.transactions
		WHERE id = $2 AND uniq_key = $3 AND delivery = 'pending' AND lease_until <= now() FOR UPDATE SKIP LOCKED`)
)

// ClaimDue leases up to limit committed rows of the brokers that nobody works on, longest waiting first.
func (s *Store) ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimDue, limit, brokers)
}

// ClaimOne leases the row of the half message, unless somebody works on it.
func (s *Store) ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error) {
	claims, err := s.claim(ctx, claimOne, id, uniqKey)
	if err != nil || len(claims) == 0 {
		return txn.Claim{}, false, err
	}
	return claims[0], true, nil
}

func (s *Store) claim(ctx context.Context, query string, args ...any) ([]txn.Claim, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	start := time.Now()
	// Planned anew each time: a plan that was made while the table was small reads all of it, and would be kept until its
	// statistics are renewed.
	args = append([]any{pgx.QueryExecModeCacheDescribe, s.timing.Lease()}, args...)
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("claiming pending deliveries: %w", err)
	}
	claims, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (txn.Claim, error) {
		return scanClaim(row, start.Add(s.timing.WriteWithin))
	})
	if err != nil {
		return nil, fmt.Errorf("claiming pending deliveries: %w", err)
	}
	return claims, nil
}

func scanClaim(row pgx.CollectableRow, writeBefore time.Time) (txn.Claim, error) {
	c := txn.Claim{}
	var freeFor time.Duration
	m := &c.Message
	var properties []byte
	err := row.Scan(&m.TxID, &m.Kind, &m.ShardKey, &m.Topic, &m.Tag, &m.Keys, &properties, &m.Traceparent,
		&m.Queue.Broker, &m.Queue.ID, &m.UniqKey, &c.Half.CommitLogOffset, &c.Half.QueueOffset, &m.Body, &c.CreatedAt,
		&c.Lease.Epoch, &c.Attempts, &freeFor)
	if err != nil {
		return c, err
	}
	if properties != nil {
		if err := json.Unmarshal(properties, &m.Properties); err != nil {
			return c, fmt.Errorf("decoding the properties of transaction %s: %w", m.TxID, err)
		}
	}
	c.Half.UniqKey, c.Half.Broker = m.UniqKey, m.Queue.Broker
	// The broker refuses an end later than the message's own immunity, unless it answers a check-back (604).
	c.Half.FromCheck = true
	c.Lease.ID, c.Lease.WriteBefore = m.TxID, writeBefore
	c.FreeSince = time.Now().Add(-freeFor)
	return c, nil
}
