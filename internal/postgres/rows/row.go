package rows

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

// Of returns the transaction that the decided row of an attempt describes.
func Of(a *txn.Attempt, state txn.State, decidedAt time.Time) *txn.Transaction {
	t := &txn.Transaction{
		ID: a.Request.ID, Kind: a.Kind.Name, State: state, Delivery: txn.DeliveryNone, ShardKey: a.Request.ShardKey,
		Topic: a.Kind.Topic, Tag: a.Request.Tag, Keys: a.Request.Keys, Properties: a.Request.Properties, Route: a.Route,
		MessageID: a.Half.UniqKey, CreatedAt: Stamp(a.CreatedAt), DecidedAt: Stamp(decidedAt), Fingerprint: a.Fingerprint,
		Ordered: a.Kind.Ordered,
	}
	if state == txn.StateCommitted {
		t.Delivery = txn.DeliveryPending
	}
	return t
}

// Stamp is a time as PostgreSQL stores it, so that an answer and its repetition are equal.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Insert returns the statement that writes the row of an attempt. Its text is the same for all attempts of a kind, so that
// it is prepared once.
func Insert(a *txn.Attempt) string {
	return statement(a, insertPlain, insertOutbox, insertOrdered, insertOrderedOutbox)
}

// Replace returns the statement that lets the row of an attempt take the place of an abandoned one. It changes no row when
// the id's row is decided, or fences the attempt's own half message.
func Replace(a *txn.Attempt) string {
	return statement(a, replacePlain, replaceOutbox, replaceOrdered, replaceOrderedOutbox)
}

func statement(a *txn.Attempt, plain, outbox, ordered, orderedOutbox string) string {
	switch {
	case a.Via == txn.ViaOutbox && a.Kind.Ordered:
		return orderedOutbox
	case a.Via == txn.ViaOutbox:
		return outbox
	case a.Kind.Ordered:
		return ordered
	default:
		return plain
	}
}

// Values returns the arguments of Insert and Replace. A row whose message is to be delivered gets the lease; others have
// none.
func Values(a *txn.Attempt, t *txn.Transaction, lease time.Duration) ([]any, error) {
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
		if a.Kind.Body != txn.BodyResult { // else the result is the body
			body = []byte(a.Request.Payload)
		}
	}
	var traceparent *string
	if a.Request.Traceparent != "" {
		traceparent = &a.Request.Traceparent
	}
	return []any{
		t.ID, t.Kind, string(t.State), string(t.Delivery), t.Fingerprint.Exact, t.ShardKey, t.Topic, t.Tag, t.Keys, properties, traceparent,
		t.Route.Queue.Broker, t.Route.Queue.ID, SelectorText(t.Route), t.Route.Reason, a.Half.UniqKey, a.Half.CommitLogOffset, a.Half.QueueOffset,
		body, JSON(t.Result), rejection, t.CreatedAt, t.DecidedAt, leaseArg, t.Fingerprint.Value,
	}, nil
}

// JSON is an argument of type json: NULL for JSON that was not given.
func JSON(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}

// scan reads the columns of find.
func scan(row pgx.Row) (t *txn.Transaction, waitsForStandbys bool, err error) {
	t = new(txn.Transaction)
	var result *string
	var rejection, properties []byte
	var decided, delivered, expires *time.Time
	err = row.Scan(
		&t.ID, &t.Kind, &t.State, &t.Delivery, &t.Abandoned, &t.Fingerprint.Exact, &t.ShardKey, &t.Topic, &t.Tag, &t.Keys, &properties,
		&t.Route.Queue.Broker, &t.Route.Queue.ID, &t.Route.Selector, &t.Route.Reason, &t.MessageID,
		&result, &t.ResultTooLarge,
		&rejection, &t.CreatedAt, &decided, &delivered, &expires, &t.Ordered,
		&t.PendingReason, &t.Parked, &t.Fingerprint.Value,
		&waitsForStandbys,
	)
	if err != nil {
		return nil, false, err
	}
	t.Route.Selector, t.Route.Lane, _ = strings.Cut(t.Route.Selector, laneMark)
	if result != nil {
		t.Result = json.RawMessage(*result)
	}
	if rejection != nil {
		t.Rejection = new(txn.Rejection)
		if err := json.Unmarshal(rejection, t.Rejection); err != nil {
			return nil, false, fmt.Errorf("decoding the rejection: %w", err)
		}
	}
	if properties != nil {
		if err := json.Unmarshal(properties, &t.Properties); err != nil {
			return nil, false, fmt.Errorf("decoding the properties: %w", err)
		}
	}
	t.CreatedAt, t.DecidedAt, t.DeliveredAt, t.ExpiresAt = t.CreatedAt.UTC(), utc(decided), utc(delivered), utc(expires)
	return t, waitsForStandbys, nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// laneMark separates selector and lane in the column selector, where there is a lane: a column of its own would cost every
// row, and few have a lane.
const laneMark = ":"

// SelectorText is the value of the column selector.
func SelectorText(r txn.Route) string {
	if r.Lane == "" {
		return r.Selector
	}
	return r.Selector + laneMark + r.Lane
}
