package localtx

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

// insertColumns are the columns that an attempt writes; rowArgs gives their values in this order.
const insertColumns = `id, kind, state, delivery, request_hash, shard_key, topic, tag, keys, properties, traceparent,
	broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset,
	body, result, rejection, created_at, decided_at, lease_until, fingerprint`

const insertValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
	$12, $13, $14, $15, $16, $17, $18,
	$19, $20, $21, $22, $23, clock_timestamp() + $24::interval, $25`

// rowStatements write the row of an attempt. What is the same for most rows is left to the table's defaults: each column
// that is named costs every transaction time.
type rowStatements struct {
	insert string
	// reopen lets a new attempt take the place of a row that only fences. It finds no row when the row is decided, or when the
	// fence is on this very half message.
	reopen string
}

func newRowStatements(columns, values string) rowStatements {
	columns, values = insertColumns+columns, insertValues+values
	return rowStatements{
		insert: `INSERT INTO txsvc.transactions (` + columns + `) VALUES (` + values + `)`,
		reopen: `UPDATE txsvc.transactions SET (` + columns + `, abandoned) = (` + values + `, false)
			WHERE id = $1 AND abandoned AND NOT ($16 = ANY (coalesce(fenced, '{}')))`,
	}
}

var (
	plainRow         = newRowStatements(``, ``)
	outboxRow        = newRowStatements(`, outbox`, `, true`)
	orderedRow       = newRowStatements(`, ordered, line`, `, true, nextval('txsvc.line')`)
	orderedOutboxRow = newRowStatements(`, outbox, ordered, line`, `, true, true, nextval('txsvc.line')`)
)

func statementsOf(a *txn.Attempt) rowStatements {
	switch {
	case a.Via == txn.ViaOutbox && a.Kind.Ordered:
		return orderedOutboxRow
	case a.Via == txn.ViaOutbox:
		return outboxRow
	case a.Kind.Ordered:
		return orderedRow
	default:
		return plainRow
	}
}

var (
	// refuseRow stores a rejection, unless another attempt was decided meanwhile. It may take the place of a fence on its own
	// half message: nothing was committed, and this row keeps it so.
	refuseRow = plainRow.insert + ` ON CONFLICT (id) DO UPDATE SET (` + insertColumns + `, abandoned) = (` + insertValues + `, false)
		WHERE transactions.abandoned`
)

// rowOf is what a decided row says, for the attempt and its outcome.
func rowOf(a *txn.Attempt, state txn.State, decidedAt time.Time) *txn.Transaction {
	t := &txn.Transaction{
		ID: a.Request.ID, Kind: a.Kind.Name, State: state, Delivery: txn.DeliveryNone, ShardKey: a.Request.ShardKey,
		Topic: a.Kind.Topic, Tag: a.Request.Tag, Keys: a.Request.Keys, Properties: a.Request.Properties, Route: a.Route,
		MessageID: a.Half.UniqKey, CreatedAt: stamp(a.CreatedAt), DecidedAt: stamp(decidedAt), Fingerprint: a.Fingerprint,
		Ordered: a.Kind.Ordered,
	}
	if state == txn.StateCommitted {
		t.Delivery = txn.DeliveryPending
	}
	return t
}

// stamp is a time as PostgreSQL keeps it, so that an answer and its repetition are equal.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// rowArgs returns the values of insertColumns. lease 0 leaves the row without one.
func rowArgs(a *txn.Attempt, t *txn.Transaction, lease time.Duration) ([]any, error) {
	var properties, rejection, body any
	var leaseArg *time.Duration
	if len(t.Properties) > 0 {
		encoded, err := json.Marshal(t.Properties)
		if err != nil {
			return nil, fmt.Errorf("encoding the properties: %w", err)
		}
		properties = string(encoded)
	}
	if t.Rejection != nil {
		encoded, err := json.Marshal(t.Rejection)
		if err != nil {
			return nil, fmt.Errorf("encoding the rejection: %w", err)
		}
		rejection = string(encoded)
	}
	if t.Delivery == txn.DeliveryPending {
		leaseArg = &lease
		if !a.Kind.BodyResult { // else the result is the body
			body = []byte(a.Request.Payload)
		}
	}
	var traceparent *string
	if a.Request.Traceparent != "" {
		traceparent = &a.Request.Traceparent
	}
	return []any{
		t.ID, t.Kind, string(t.State), string(t.Delivery), t.Fingerprint.Exact, t.ShardKey, t.Topic, t.Tag, t.Keys, properties, traceparent,
		t.Route.Queue.Broker, t.Route.Queue.ID, selectorText(t.Route), t.Route.Reason,
		a.Half.UniqKey, a.Half.CommitLogOffset, a.Half.QueueOffset,
		body, jsonArg(t.Result), rejection, t.CreatedAt, t.DecidedAt, leaseArg, t.Fingerprint.Value,
	}, nil
}

// readableResult is the result, and instead of one that is larger than any limit, which rows of earlier versions can have, its
// size: to read it would take as much memory, several times.
var readableResult = fmt.Sprintf(`CASE WHEN octet_length(result::text) <= %[1]d THEN result END,
	CASE WHEN octet_length(result::text) > %[1]d THEN octet_length(result::text) ELSE 0 END`, txn.MaxResultLimit)

var selectColumns = `id, kind, state, delivery, abandoned, request_hash, shard_key, topic, tag, keys, properties,
	broker, queue_id, selector, reason, uniq_key, ` + readableResult + `, rejection, created_at, decided_at, delivered_at, expires_at, ordered,
	coalesce(last_error, ''), coalesce(lease_until = 'infinity', false), fingerprint`

// scanTransaction reads selectColumns, and what follows them.
func scanTransaction(row pgx.Row, more ...any) (*txn.Transaction, error) {
	var t txn.Transaction
	var result *string
	var rejection, properties []byte
	var decided, delivered, expires *time.Time
	err := row.Scan(append([]any{
		&t.ID, &t.Kind, &t.State, &t.Delivery, &t.Abandoned, &t.Fingerprint.Exact, &t.ShardKey, &t.Topic, &t.Tag, &t.Keys, &properties,
		&t.Route.Queue.Broker, &t.Route.Queue.ID, &t.Route.Selector, &t.Route.Reason, &t.MessageID, &result, &t.ResultTooLarge, &rejection,
		&t.CreatedAt, &decided, &delivered, &expires, &t.Ordered, &t.Trouble, &t.Parked, &t.Fingerprint.Value,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	t.Route.Selector, t.Route.Lane, _ = strings.Cut(t.Route.Selector, laneMark)
	if result != nil {
		t.Result = json.RawMessage(*result)
	}
	if rejection != nil {
		t.Rejection = new(txn.Rejection)
		if err := json.Unmarshal(rejection, t.Rejection); err != nil {
			return nil, fmt.Errorf("decoding the rejection of transaction %s: %w", t.ID, err)
		}
	}
	if properties != nil {
		if err := json.Unmarshal(properties, &t.Properties); err != nil {
			return nil, fmt.Errorf("decoding the properties of transaction %s: %w", t.ID, err)
		}
	}
	t.CreatedAt, t.DecidedAt, t.DeliveredAt, t.ExpiresAt = t.CreatedAt.UTC(), utc(decided), utc(delivered), utc(expires)
	return &t, nil
}

// laneMark stands between the selector and the lane in the column selector, where there is a lane: a column of its own
// would cost every row for what few have.
const laneMark = ":"

func selectorText(r txn.Route) string {
	if r.Lane == "" {
		return r.Selector
	}
	return r.Selector + laneMark + r.Lane
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
