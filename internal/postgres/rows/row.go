package rows

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres/producers"
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

// Values returns the arguments of replace and refuse. A row whose message is to be delivered gets the lease; others have
// none.
func rowValues(a *txn.Attempt, t *txn.Transaction, lease time.Duration) ([]any, error) {
	var rejection, body any
	var leaseArg *time.Duration
	properties, err := propertiesOf(a)
	if err != nil {
		return nil, err
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
		body = bodyOf(a)
	}
	return []any{
		t.ID, t.Kind, string(t.State), string(t.Delivery), t.ShardKey, t.Topic, t.Tag, t.Keys, properties, orNull(a.Request.Traceparent),
		t.Route.Queue.Broker, t.Route.Queue.ID, SelectorText(t.Route), t.Route.Reason, a.Half.UniqKey, a.Half.CommitLogOffset, a.Half.QueueOffset,
		body, JSON(t.Result), rejection, t.CreatedAt, leaseArg, t.Fingerprint,
	}, nil
}

func propertiesOf(a *txn.Attempt) (any, error) {
	if len(a.Request.Properties) == 0 {
		return nil, nil //nolint:nilnil // NULL
	}
	encoded, err := json.Marshal(a.Request.Properties)
	if err != nil {
		return nil, fmt.Errorf("encoding the properties: %w", err)
	}
	return string(encoded), nil
}

// bodyOf is what is kept of the message; NULL where the result is the body.
func bodyOf(a *txn.Attempt) any {
	if a.Kind.Body == txn.BodyResult {
		return nil
	}
	return []byte(a.Request.Payload)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
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
	var rejection, properties, times []byte
	var decided, delivered, expires *time.Time
	err = row.Scan(
		&t.ID, &t.Kind, &t.State, &t.Delivery, &times, &t.Abandoned, &t.ShardKey, &t.Topic, &t.Tag, &t.Keys, &properties,
		&t.Route.Queue.Broker, &t.Route.Queue.ID, &t.Route.Selector, &t.Route.Reason, &t.MessageID,
		&result, &t.ResultTooLarge,
		&rejection, &t.CreatedAt, &decided, &delivered, &expires, &t.Ordered,
		&t.PendingReason, &t.Parked, &t.Fingerprint,
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
	if t.Delivery == txn.DeliveryDelivered && t.DeliveredAt.IsZero() {
		t.DeliveredAt = producers.VisibleAt(times, t.CreatedAt)
	}
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
