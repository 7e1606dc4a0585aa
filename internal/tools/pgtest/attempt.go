package pgtest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

var serial atomic.Int64

// Order is a payload for the kind "orders".
const Order = `{"customer":"acme","currency":"EUR","items":[{"sku":"pen","quantity":3,"amount_minor":150},{"sku":"ink","quantity":1,"amount_minor":900}]}`

// Attempt returns a new attempt with a half message of its own. The kind's timeout is 5 s unless one is given.
func Attempt(kind, id, payload string, timeouts ...time.Duration) *txn.Attempt {
	n := serial.Add(1)
	queue := txn.Queue{Broker: "broker-a", ID: int(n % 8)}
	k := &txn.Kind{Name: kind, Destination: txn.Destination{Topic: "topic-" + kind}, Timeout: 5 * time.Second}
	if len(timeouts) > 0 {
		k.Timeout = timeouts[0]
	}
	r := txn.Request{
		Kind: kind, ID: id, ShardKey: "key-" + id, Payload: json.RawMessage(payload), Tag: "created",
		Keys: []string{"k1", "k2"}, Properties: map[string]string{"source": "tests"},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	hash := sha256.Sum256(r.Payload)
	half := txn.Half{
		UniqKey: fmt.Sprintf("%032X", n), Broker: queue.Broker, CommitLogOffset: 1000 + n, QueueOffset: n, TransactionID: "t",
	}
	a := &txn.Attempt{
		Kind: k, Request: r, Fingerprint: hash[:16], Half: half, CreatedAt: time.Now(),
		Route: txn.Route{Queue: queue, Selector: "hash", Reason: "fnv1a64(shard_key) mod 8"},
	}
	a.Message = txn.Message{
		UniqKey: half.UniqKey, Topic: k.Topic, Tag: r.Tag, Keys: r.Keys, ShardKey: r.ShardKey, TxID: id, Kind: kind,
		Properties: r.Properties, Traceparent: r.Traceparent, Body: r.Payload, Queue: queue,
	}
	return a
}

// Tracking registers the store as a process of its own, so that it keeps track of its rows.
func (s *Store) Tracking(t testing.TB) (prefix string) {
	t.Helper()
	s.prefix = fmt.Sprintf("0A0000010001%08X", serial.Add(1))
	if err := s.Register(t.Context(), s.prefix); err != nil {
		t.Fatal(err)
	}
	return s.prefix
}

// Begun makes an attempt one that this process begins now, and keeps track of. It writes a watermark first.
func (s *Store) Begun(t testing.TB, a *txn.Attempt) *txn.Attempt {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Half.UniqKey = s.prefix + a.Half.UniqKey[len(s.prefix):]
	a.Message.UniqKey, a.CreatedAt = a.Half.UniqKey, s.Begin()
	return a
}

// Tracked commits a new attempt of the kind "orders", whose row is tracked.
func (s *Store) Tracked(t testing.TB, id string) (*txn.Attempt, txn.Outcome) {
	t.Helper()
	a := s.Begun(t, Attempt("orders", id, Order))
	o := s.Run(t.Context(), a)
	WantKind(t, o, txn.OutcomeCommitted)
	return a, o
}

// SameRequest returns another attempt at a's request, with a half message of its own.
func SameRequest(a *txn.Attempt) *txn.Attempt {
	return Attempt(a.Kind.Name, a.Request.ID, string(a.Request.Payload), a.Kind.Timeout)
}

// Outbox makes an attempt one without a half message.
func Outbox(a *txn.Attempt) *txn.Attempt {
	a.Via = txn.ViaOutbox
	a.Half = txn.Half{UniqKey: a.Half.UniqKey, Broker: a.Half.Broker, CommitLogOffset: txn.NoHalf, QueueOffset: txn.NoHalf}
	return a
}

// Wait returns the value that comes from the channel; what names it.
func Wait[V any](t testing.TB, what string, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("no %s within %s", what, Patience)
		panic("unreachable")
	}
}

// WantKind ends the test unless the outcome is of this sort.
func WantKind(t testing.TB, o txn.Outcome, want txn.OutcomeKind) {
	t.Helper()
	if o.Kind != want {
		t.Fatalf("outcome: got %s (error %v), want %s", OutcomeNames[o.Kind], o.Err, OutcomeNames[want])
	}
}

// OutcomeNames has the words for outcomes.
var OutcomeNames = map[txn.OutcomeKind]string{
	txn.OutcomeCommitted: "committed", txn.OutcomeRejected: "rejected", txn.OutcomeTaken: "taken",
	txn.OutcomeFailed: "failed", txn.OutcomeUnknown: "unknown",
}

// WantFailed ends the test unless the outcome is a failure with the code, whose text contains the detail.
func WantFailed(t testing.TB, o txn.Outcome, code txn.Code, detail string) {
	t.Helper()
	WantKind(t, o, txn.OutcomeFailed)
	if txn.CodeOf(o.Err) != code || !strings.Contains(o.Err.Error(), detail) {
		t.Fatalf("error: got %v, want %s with %q", o.Err, code, detail)
	}
}

// WantResolution ends the test unless the two are the same.
func WantResolution(t testing.TB, got, want txn.Resolution) {
	t.Helper()
	names := []string{"undecided", "rollback", "commit", "delivered"}
	if got != want {
		t.Fatalf("resolution: got %s, want %s", names[got], names[want])
	}
}
