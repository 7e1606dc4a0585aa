package localtx

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

// claim leases the rows that the query "due" locks. It stands in a WITH that is evaluated once: as a part of a join it could
// be run again, and lock more rows than its limit. $1 is the lease.
const claim = `WITH %s, claimed AS (
	UPDATE txsvc.transactions t
	SET lease_until = clock_timestamp() + $1::interval, lease_epoch = t.lease_epoch + 1, attempts = t.attempts + 1
	FROM due WHERE t.id = due.id
	RETURNING t.id, t.kind, t.shard_key, t.topic, t.tag, t.keys, t.properties, coalesce(t.traceparent, '') AS traceparent,
		t.broker, t.queue_id, t.uniq_key, t.commit_log_offset, t.queue_offset,
		coalesce(t.body, convert_to(coalesce(t.result::text, 'null'), 'UTF8')) AS body, t.created_at, t.lease_epoch, t.attempts,
		due.lease_until AS due_at, t.outbox, t.ordered, coalesce(t.line, 0) AS line)
	SELECT id, kind, shard_key, topic, tag, keys, properties, traceparent, broker, queue_id, uniq_key, commit_log_offset, queue_offset,
		body, created_at, lease_epoch, attempts, clock_timestamp() - due_at, outbox, ordered, line
	FROM claimed ORDER BY %s`

// The orders of claims.
const (
	byDue  = `due_at, id`
	byLine = `shard_key, line`
)

// claimBytes bounds the bodies that one claim brings into memory; a single one may be larger.
const claimBytes = 8 << 20

// within keeps as many rows of a query with the columns id, lease_until and size, in an order, as claimBytes lets.
const within = `due AS MATERIALIZED (SELECT id, lease_until FROM (
		SELECT id, lease_until, sum(size) OVER (ORDER BY %[1]s) - size AS before FROM %[2]s) AS sized WHERE before < %[3]d)`

// bodySize is the length of the body, or of the result that stands for it.
const bodySize = `coalesce(octet_length(body), octet_length(result::text), 0)`

var (
	claimDue = fmt.Sprintf(claim, `due AS MATERIALIZED (SELECT id, lease_until FROM txsvc.transactions
		WHERE delivery = 'pending' AND NOT ordered AND NOT outbox AND lease_until <= now() AND broker = ANY ($3)
		ORDER BY lease_until LIMIT $2 FOR UPDATE SKIP LOCKED)`, byDue)

	// claimOne leaves an ordered row alone while one before it is pending. What is delivered stays so: an old snapshot can only
	// show too much that is pending.
	claimOne = fmt.Sprintf(claim, `due AS MATERIALIZED (SELECT id, lease_until FROM txsvc.transactions r
		WHERE id = $2 AND uniq_key = $3 AND delivery = 'pending' AND lease_until <= now() AND NOT (ordered AND EXISTS (
			SELECT FROM txsvc.transactions b WHERE b.topic = r.topic AND b.shard_key = r.shard_key AND b.ordered
				AND b.delivery = 'pending' AND b.line < r.line))
		FOR UPDATE SKIP LOCKED)`, byDue)

	claimOutbox = fmt.Sprintf(claim, fmt.Sprintf(within, `lease_until, id`, `(
		SELECT id, lease_until, `+bodySize+` AS size FROM txsvc.transactions
		WHERE delivery = 'pending' AND outbox AND NOT ordered AND broker = $3 AND topic = $4 AND lease_until <= now()
		ORDER BY lease_until LIMIT $2 FOR UPDATE SKIP LOCKED) AS locked`, claimBytes), byDue)

	// claimLines takes of each line what can be had from its head on without a gap. A row that another is working on, or that
	// is not due, ends it.
	claimLines = fmt.Sprintf(claim, `standing AS MATERIALIZED (
		SELECT r.id, k.shard_key, r.line, row_number() OVER (PARTITION BY k.shard_key ORDER BY r.line) AS place
		FROM unnest($5::text[]) AS k (shard_key), LATERAL (
			SELECT id, line FROM txsvc.transactions
			WHERE topic = $4 AND shard_key = k.shard_key AND ordered AND delivery = 'pending' ORDER BY line LIMIT $2) AS r),
	locked AS MATERIALIZED (
		SELECT s.id, s.shard_key, s.line, s.place, l.lease_until, l.size FROM standing AS s, LATERAL (
			SELECT lease_until, `+bodySize+` AS size FROM txsvc.transactions
			WHERE id = s.id AND delivery = 'pending' AND lease_until <= now() AND broker = ANY ($3) LIMIT 1 FOR UPDATE SKIP LOCKED) AS l),
	`+fmt.Sprintf(within, `shard_key, line`, `(
		SELECT id, shard_key, line, lease_until, size, place, row_number() OVER (PARTITION BY shard_key ORDER BY line) AS had
		FROM locked) AS runs WHERE place = had`, claimBytes), byLine)

	// dueLines goes from one line to the next by its head, so that the lengths of the lines do not matter.
	dueLines = `WITH RECURSIVE heads AS (
			(SELECT shard_key, lease_until, broker FROM txsvc.transactions
			WHERE delivery = 'pending' AND ordered AND topic = $1 AND shard_key > $2 ORDER BY shard_key, line LIMIT 1)
		UNION ALL
			SELECT next.shard_key, next.lease_until, next.broker FROM heads AS h, LATERAL (
				SELECT shard_key, lease_until, broker FROM txsvc.transactions
				WHERE delivery = 'pending' AND ordered AND topic = $1 AND shard_key > h.shard_key ORDER BY shard_key, line LIMIT 1) AS next
		)
		SELECT shard_key, lease_until <= now() AND broker = ANY ($4) FROM heads LIMIT $3`

	// groups finds the brokers and topics of outbox rows, and the topics of lines, in the same manner.
	groups = `WITH RECURSIVE pairs AS (
			(SELECT broker, topic FROM txsvc.transactions WHERE delivery = 'pending' AND outbox AND NOT ordered ORDER BY broker, topic LIMIT 1)
		UNION ALL
			SELECT next.broker, next.topic FROM pairs AS p, LATERAL (
				SELECT broker, topic FROM txsvc.transactions
				WHERE delivery = 'pending' AND outbox AND NOT ordered AND (broker, topic) > (p.broker, p.topic) ORDER BY broker, topic LIMIT 1) AS next
		), topics AS (
			(SELECT topic FROM txsvc.transactions WHERE delivery = 'pending' AND ordered ORDER BY topic LIMIT 1)
		UNION ALL
			SELECT next.topic FROM topics AS p, LATERAL (
				SELECT topic FROM txsvc.transactions WHERE delivery = 'pending' AND ordered AND topic > p.topic ORDER BY topic LIMIT 1) AS next
		)
		SELECT broker, topic FROM pairs UNION ALL SELECT '', topic FROM topics`
)

// ClaimDue leases up to limit committed rows of the brokers that have a half message, have no line to stand in, and are
// not worked on, longest waiting first.
func (s *Store) ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimDue, limit, brokers)
}

// ClaimOne leases the row of the half message, unless somebody works on it or on one before it.
func (s *Store) ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error) {
	claims, err := s.claim(ctx, claimOne, id, uniqKey)
	if err != nil || len(claims) == 0 {
		return txn.Claim{}, false, err
	}
	return claims[0], true, nil
}

// ClaimOutbox leases up to limit rows of one broker and topic that have no half message and no line to stand in, longest
// waiting first.
func (s *Store) ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimOutbox, limit, broker, topic)
}

// ClaimLines leases the heads of lines of the topic, each with up to limit-1 of those behind it, where they are due and
// belong to the brokers. They are returned line by line, in order.
func (s *Store) ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, claimLines, limit, brokers, topic, shardKeys)
}

func (s *Store) claim(ctx context.Context, query string, args ...any) ([]txn.Claim, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	start := time.Now()
	// Planned anew each time: a plan that was made while the table was small reads all of it, and would be kept until its
	// statistics are renewed.
	args = append([]any{pgx.QueryExecModeCacheDescribe, s.timing.Lease()}, args...)
	var claims []txn.Claim
	err := s.write(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		claims, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (txn.Claim, error) {
			return scanClaim(row, start.Add(s.timing.WriteWithin))
		})
		return err
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
		&c.Lease.Epoch, &c.Attempts, &freeFor, &c.Outbox, &c.Ordered, &c.Line)
	if err != nil {
		return c, err
	}
	c.First = c.Half.CommitLogOffset
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

// DueLines looks at up to limit lines of the topic, in the order of their shard keys and beginning after one. It returns
// those whose head can be claimed, and the last it has looked at: "" when it was the last of all.
func (s *Store) DueLines(ctx context.Context, topic, after string, brokers []string, limit int) (due []string, last string, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, dueLines, pgx.QueryExecModeCacheDescribe, topic, after, limit, brokers)
	if err != nil {
		return nil, "", fmt.Errorf("looking for lines: %w", err)
	}
	seen, isDue := 0, false
	_, err = pgx.ForEachRow(rows, []any{&last, &isDue}, func() error {
		if seen++; isDue {
			due = append(due, last)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("looking for lines: %w", err)
	}
	if seen < limit {
		last = ""
	}
	return due, last, nil
}

// Groups returns what the relay finds pending: a broker and a topic for rows without a line, a topic alone for lines.
func (s *Store) Groups(ctx context.Context) ([]txn.Group, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, groups, pgx.QueryExecModeCacheDescribe)
	if err != nil {
		return nil, fmt.Errorf("looking for what the relay has to do: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[txn.Group])
	if err != nil {
		return nil, fmt.Errorf("looking for what the relay has to do: %w", err)
	}
	return found, nil
}
