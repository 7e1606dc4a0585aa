package leases

import "github.com/txsvc/txsvc/internal/postgres/producers"

// The queries that claim have the same shape: a part of their own, "due", that locks rows which may be claimed, and then
// takeDue, which leases these rows and returns what scanClaim reads. "due" is materialized, thus evaluated once: as a part of
// a join it could be run again, and lock more rows than its limit.
const takeDue = `, claimed AS (
		UPDATE txsvc.transactions t
		SET delivery = 'pending', lease_until = clock_timestamp() + @lease::interval, lease_epoch = t.lease_epoch + 1, attempts = t.attempts + 1
		FROM due WHERE t.id = due.id
		RETURNING t.id, t.kind, t.shard_key, t.topic, t.tag, t.keys, t.properties, coalesce(t.traceparent, '') AS traceparent,
			t.broker, t.queue_id, t.uniq_key, t.commit_log_offset, t.queue_offset,
			coalesce(t.body, convert_to(coalesce(t.result::text, 'null'), 'UTF8')) AS body, t.created_at, t.lease_epoch, t.attempts,
			due.lease_until AS due_at, t.outbox, t.ordered, coalesce(t.line, 0) AS line)
	SELECT id, kind, shard_key, topic, tag, keys, properties, traceparent, broker, queue_id, uniq_key, commit_log_offset, queue_offset,
		body, created_at, lease_epoch, attempts, clock_timestamp() - due_at, outbox, ordered, line
	FROM claimed ORDER BY `

// The orders in which claims are returned.
const (
	byDue  = `due_at, id`
	byLine = `shard_key, line`
)

// claimBytes bounds the bodies that one claim brings into memory (@bytes); a single body may be larger.
const claimBytes = 8 << 20

// size is the length of the body, or of the result that is used instead of one.
const size = `coalesce(octet_length(body), octet_length(result::text), 0) AS size`

const claimDue = `WITH due AS MATERIALIZED (
		SELECT id, lease_until FROM txsvc.transactions
		WHERE delivery = 'pending' AND NOT ordered AND NOT outbox AND lease_until <= now() AND broker = ANY (@brokers)
		ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED)` + takeDue + byDue

// claimOne leaves an ordered row alone while one before it is pending. A row that is delivered stays so: an old snapshot
// can only show too many that are pending.
const claimOne = `WITH due AS MATERIALIZED (
		SELECT id, ` + until + ` AS lease_until FROM txsvc.transactions r
		WHERE id = @id AND uniq_key = @uniq_key AND ` + held + ` AND ` + until + ` <= now() AND NOT (ordered AND EXISTS (
			SELECT FROM txsvc.transactions b WHERE b.topic = r.topic AND b.shard_key = r.shard_key AND b.ordered
				AND b.delivery = 'pending' AND b.line < r.line))
		FOR UPDATE SKIP LOCKED)` + takeDue + byDue

const claimOutbox = `WITH locked AS MATERIALIZED (
		SELECT id, lease_until, ` + size + ` FROM txsvc.transactions
		WHERE delivery = 'pending' AND outbox AND NOT ordered AND broker = @broker AND topic = @topic AND lease_until <= now()
		ORDER BY lease_until LIMIT @limit FOR UPDATE SKIP LOCKED),
	sized AS (
		SELECT id, lease_until, sum(size) OVER (ORDER BY lease_until, id) - size AS before FROM locked),
	due AS MATERIALIZED (SELECT id, lease_until FROM sized WHERE before < @bytes)` + takeDue + byDue

// claimLines takes from each line the rows that can be had from its head on without a gap. A row on which another works, or
// that is not due, ends it.
const claimLines = `WITH standing AS MATERIALIZED (
		SELECT r.id, k.shard_key, r.line, row_number() OVER (PARTITION BY k.shard_key ORDER BY r.line) AS place
		FROM unnest(@shard_keys::text[]) AS k (shard_key), LATERAL (
			SELECT id, line FROM txsvc.transactions
			WHERE topic = @topic AND shard_key = k.shard_key AND ordered AND delivery = 'pending' ORDER BY line LIMIT @limit) AS r),
	locked AS MATERIALIZED (
		SELECT s.id, s.shard_key, s.line, s.place, l.lease_until, l.size FROM standing AS s, LATERAL (
			SELECT lease_until, ` + size + ` FROM txsvc.transactions
			WHERE id = s.id AND delivery = 'pending' AND lease_until <= now() AND broker = ANY (@brokers) LIMIT 1 FOR UPDATE SKIP LOCKED) AS l),
	runs AS (
		SELECT id, shard_key, line, lease_until, size, place, row_number() OVER (PARTITION BY shard_key ORDER BY line) AS had FROM locked),
	sized AS (
		SELECT id, lease_until, sum(size) OVER (ORDER BY shard_key, line) - size AS before FROM runs WHERE place = had),
	due AS MATERIALIZED (SELECT id, lease_until FROM sized WHERE before < @bytes)` + takeDue + byLine

// dueLines goes from one line to the next by its head, so that the lengths of the lines do not matter.
const dueLines = `WITH RECURSIVE heads AS (
		(SELECT shard_key, lease_until, broker FROM txsvc.transactions
		WHERE delivery = 'pending' AND ordered AND topic = @topic AND shard_key > @after ORDER BY shard_key, line LIMIT 1)
	UNION ALL
		SELECT next.shard_key, next.lease_until, next.broker FROM heads AS h, LATERAL (
			SELECT shard_key, lease_until, broker FROM txsvc.transactions
			WHERE delivery = 'pending' AND ordered AND topic = @topic AND shard_key > h.shard_key ORDER BY shard_key, line LIMIT 1) AS next
	)
	SELECT shard_key, lease_until <= now() AND broker = ANY (@brokers) FROM heads LIMIT @limit`

// groups finds the brokers and topics of outbox rows, and the topics of lines, in the manner of dueLines.
const groups = `WITH RECURSIVE pairs AS (
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

// Of a tracked row, the first lease began when it was decided. A statement of a lease's holder makes it one that says by
// itself that its message is pending.
const (
	held  = `delivery IN ('pending', '` + producers.Delivery + `')`
	until = `coalesce(lease_until, decided_at + @lease::interval)`
	// counted: the first holder of a tracked row counts as a claim.
	counted = `attempts = CASE delivery WHEN '` + producers.Delivery + `' THEN 1 ELSE attempts END`
)

// The statements of a lease's holder. Each of them does nothing when the lease was lost.
const (
	renew = `UPDATE txsvc.transactions SET delivery = 'pending', lease_until = clock_timestamp() + $3::interval
		WHERE id = $1 AND lease_epoch = $2 AND ` + held + ` AND coalesce(lease_until, decided_at + $3::interval) > clock_timestamp()`

	deferRow = `UPDATE txsvc.transactions SET delivery = 'pending', ` + counted + `, lease_until = clock_timestamp() + $3::interval,
			last_error = nullif($4, '')
		WHERE id = $1 AND lease_epoch = $2 AND ` + held

	// giveBack is deferRow for many rows. A claim with which certainly nothing was sent does not count. The condition
	// on delivery has a form that no index is for, so that rows are found by their ids; see rows.
	giveBack = `UPDATE txsvc.transactions t SET delivery = 'pending', lease_until = clock_timestamp() + $3::interval, attempts = greatest(t.attempts - 1, 0),
			last_error = coalesce(nullif($4, ''), t.last_error)
		FROM unnest($1::text[], $2::bigint[]) AS l (id, epoch)
		WHERE t.id = l.id AND t.lease_epoch = l.epoch AND t.delivery || '' IN ('pending', '` + producers.Delivery + `')`

	park = `UPDATE txsvc.transactions SET delivery = 'pending', ` + counted + `, lease_until = 'infinity', last_error = $3
		WHERE id = $1 AND lease_epoch = $2 AND ` + held

	reroute = `UPDATE txsvc.transactions
		SET delivery = 'pending', broker = @broker, queue_id = @queue_id, selector = @selector, reason = @reason, uniq_key = @uniq_key,
			outbox = true, commit_log_offset = @no_half, queue_offset = @no_half,
			attempts = 0, lease_until = clock_timestamp(), last_error = @why
		WHERE id = @id AND lease_epoch = @epoch AND ` + held
)

// noteWaiting leaves rows alone on which somebody is working.
const noteWaiting = `UPDATE txsvc.transactions SET last_error = $2 WHERE id IN (
		SELECT id FROM txsvc.transactions WHERE delivery = 'pending' AND broker = $1 AND last_error IS NULL AND lease_until <> 'infinity'
		ORDER BY lease_until LIMIT $3 FOR UPDATE SKIP LOCKED) AND delivery = 'pending'`
