package rows

import (
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
)

// The columns of a row that takes the place of a fence, or is a rejection, and their values; Values gives the arguments in
// this order.
const (
	columns = `id, kind, state, delivery, shard_key, topic, tag, keys, properties, traceparent,
	broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset,
	body, result, rejection, created_at, decided_at, lease_until, fingerprint`

	values = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
	$11, $12, $13, $14, $15, $16, $17,
	$18, $19, $20, $21, clock_timestamp(), clock_timestamp() + $22::interval, $23`

	// replace writes a row in the place of an abandoned one. It finds no row when the row is decided, or when it fences this very
	// half message.
	replace = `UPDATE txsvc.transactions SET (` + columns + `, outbox, ordered, line, abandoned) = (` + values + `, $24, $25,
		CASE WHEN $25 THEN nextval('txsvc.line') END, false) WHERE id = $1 AND abandoned AND NOT ($15 = ANY (coalesce(fenced, '{}')))
		RETURNING decided_at`
)

// refuse stores a rejection, unless another attempt was decided meanwhile. It may take the place of a fence on its own half
// message: nothing was committed, and this row holds that for good.
const refuse = `INSERT INTO txsvc.transactions (` + columns + `) VALUES (` + values + `) ON CONFLICT (id) DO UPDATE SET (` + columns + `, abandoned) = (` + values + `, false)
	WHERE transactions.abandoned RETURNING decided_at`

// fence makes it impossible for the local transaction of a half message to commit: it takes the id's key first, or finds
// the key taken. Whoever comes second waits for the other, in the database. An abandoned row is decided again with each half
// message that it fences, because it is deleted by the age of its decision.
const fence = `INSERT INTO txsvc.transactions (id, kind, state, delivery, abandoned, fenced, shard_key, topic, tag,
		broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset, created_at, decided_at)
	VALUES ($1, $2, 'rolled_back', 'none', true, ARRAY[$3::text], $4, $5, $6,
		$7, $8, '', '', $3, $9, $10, $11, $11)
	ON CONFLICT (id) DO UPDATE SET fenced = array_append(transactions.fenced, $3), decided_at = $11
	WHERE transactions.abandoned AND NOT ($3 = ANY (coalesce(transactions.fenced, '{}')))`

// find reads what scan takes. A result that is larger than any limit, which rows of earlier versions can have, is not read
// but replaced by its size: reading it would take several times as much memory. $2 is that limit.
const find = `SELECT id, kind, state, CASE WHEN delivery <> '` + producers.Delivery + `' THEN delivery WHEN ` + producers.IsVisible + ` THEN 'delivered' ELSE 'pending' END,
		CASE WHEN delivery = '` + producers.Delivery + `' THEN ` + producers.Times + ` END, abandoned, shard_key, topic, tag, keys, properties,
		broker, queue_id, selector, reason, uniq_key,
		CASE WHEN octet_length(result::text) <= $2 THEN result END, CASE WHEN octet_length(result::text) > $2 THEN octet_length(result::text) ELSE 0 END,
		rejection, created_at, decided_at, delivered_at, expires_at, ordered,
		coalesce(last_error, ''), coalesce(lease_until = 'infinity', false), fingerprint,
		` + postgres.WaitsForStandbys + `
	FROM txsvc.transactions t WHERE id = $1`

// countPending reads all rows that are pending, those among them that processes keep track of.
const countPending = `SELECT count(*), count(*) FILTER (WHERE lease_until = 'infinity'),
		coalesce(extract(epoch FROM clock_timestamp() - min(decided_at)), 0)::float8
	FROM (SELECT lease_until, decided_at FROM txsvc.transactions WHERE delivery = 'pending'
		UNION ALL SELECT NULL, t.decided_at FROM txsvc.producers p JOIN txsvc.transactions t
			ON t.created_at >= p.visible_before AND t.created_at < p.ceiling AND left(t.uniq_key, 20) = p.prefix
			WHERE p.visible_before < p.ceiling AND t.delivery = '` + producers.Delivery + `') AS r`

const redeliver = `UPDATE txsvc.transactions SET lease_until = clock_timestamp(), last_error = NULL
	WHERE id = $1 AND delivery = 'pending' AND lease_until = 'infinity'`

// Ahead finds the pending rows before a row of its line; it takes topic, shard key and id. The second column is true for rows
// on which a request still works, so that waiting for them is worthwhile.
const Ahead = `SELECT id, attempts = 0 AND lease_until > clock_timestamp() FROM txsvc.transactions
	WHERE topic = $1 AND shard_key = $2 AND ordered AND delivery = 'pending'
		AND line < (SELECT line FROM txsvc.transactions WHERE id = $3)
	ORDER BY line LIMIT 8`

// aheadLimit is Ahead's LIMIT: with so many rows there may be more.
const aheadLimit = 8

const (
	// markSettings: a mark need not wait for the disk. And a plan that was made while the table was small reads all of it,
	// and would be used until the table's statistics are renewed.
	markSettings = `SELECT set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true),
		set_config('enable_seqscan', 'off', true)`

	// markDelivered takes ids, times, and the kinds whose bodies stay in their rows. The condition on delivery has a form that no
	// index is for, because rows are to be found by their ids: PostgreSQL takes a backlog that has come since statistics
	// were gathered for few rows, and would read all of them for each statement.
	markDelivered = `UPDATE txsvc.transactions t
		SET delivery = 'delivered', delivered_at = m.at, body = CASE WHEN t.kind = ANY ($3) THEN t.body END, lease_until = NULL, last_error = NULL
		FROM unnest($1::text[], $2::timestamptz[]) AS m (id, at)
		WHERE t.id = m.id AND t.delivery || '' = 'pending'`
)
