package producers_test

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
	"github.com/txsvc/txsvc/migrations"
)

// What the version before tracked rows executes: it registers every ten minutes, writes a row, and claims one.
const (
	oldRegister = `INSERT INTO txsvc.producers (prefix) VALUES ($1) ON CONFLICT (prefix) DO UPDATE SET seen_at = clock_timestamp()`

	oldInsert = `INSERT INTO txsvc.transactions (id, kind, state, delivery, request_hash, shard_key, topic, tag, keys, properties, traceparent,
		broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset, body, result, rejection, created_at, decided_at, lease_until, fingerprint)
		SELECT $1, kind, state, 'pending', '\x01', shard_key, topic, tag, keys, properties, traceparent,
		broker, queue_id, selector, reason, $2, commit_log_offset, queue_offset, body, result, rejection, created_at, decided_at,
		clock_timestamp() + interval '8 s', fingerprint FROM txsvc.transactions LIMIT 1`

	oldClaim = `WITH due AS MATERIALIZED (SELECT id FROM txsvc.transactions
			WHERE id = $1 AND delivery = 'pending' AND lease_until <= now() + interval '1 minute' FOR UPDATE SKIP LOCKED),
		claimed AS (UPDATE txsvc.transactions t SET lease_until = clock_timestamp() + interval '8 s', lease_epoch = t.lease_epoch + 1, attempts = t.attempts + 1
			FROM due WHERE t.id = due.id RETURNING t.id)
		SELECT count(*) FROM claimed`
)

// While a process of the version before is known, rows are written as it understands them. After it they are tracked, and the
// migration back loses nothing of them.
func TestUpgradeWithoutPause(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	other := e.Another()
	const old = "0A0000010001FFFFFFFF"
	e.Exec(oldRegister, old)
	e.Store.Tracking(t)
	want := func(id, want string) {
		t.Helper()
		if got := delivery(e, id); got != want {
			t.Errorf("the row %s is %s, want %s", id, got, want)
		}
	}

	a, _ := e.Store.Tracked(t, "beside-old")
	want("beside-old", "pending")
	if n := pgtest.Value[int](e, oldClaim, "beside-old"); n != 1 {
		t.Error("the version before cannot claim a row of this one")
	}
	e.Store.MarkDelivered("beside-old", time.Now(), false)
	e.Store.Settle(a.CreatedAt)
	e.Exec(oldInsert, "of-old", old+"000000000001")
	if got := find(t, e.Store, "of-old"); got.Delivery != txn.DeliveryPending || got.MessageID != old+"000000000001" {
		t.Errorf("got the row of the version before %+v", got)
	}
	e.Store.MarkDelivered("of-old", time.Now(), false)
	if err := e.Store.FlushMarks(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("beside-old", "delivered")
	want("of-old", "delivered")

	e.Exec(`UPDATE txsvc.producers SET seen_at = now() - interval '12 minutes' WHERE prefix = $1`, old)
	e.Store.Tracked(t, "visible")
	want("visible", "tracked")
	e.Store.MarkDelivered("visible", time.Now(), false)
	flushed(t, e.Store)
	e.Exec(oldRegister, old) // it was only stopped
	e.Store.Tracked(t, "beside-old-again")
	want("beside-old-again", "pending")
	e.Exec(`UPDATE txsvc.producers SET seen_at = now() - interval '12 minutes' WHERE prefix = $1`, old)
	flushed(t, e.Store)
	e.Store.Tracked(t, "left")
	want("left", "tracked")

	if err := migrations.Down(t.Context(), e.URL, func(string) {}, migrations.Core); err != nil {
		t.Fatal(err)
	}
	want("visible", "delivered")
	want("left", "pending")
	if n := pgtest.Value[int](e, oldClaim, "left"); n != 1 {
		t.Error("the version before cannot claim what was left")
	}
	if n := e.Count(`txsvc.transactions WHERE id = 'left' AND body IS NOT NULL AND lease_epoch = 2`); n != 1 {
		t.Error("the version before has no body to send")
	}
	if err := migrations.Up(t.Context(), e.URL, migrations.Core); err != nil {
		t.Fatal(err)
	}
	if got := find(t, other, "visible"); got.Delivery != txn.DeliveryDelivered {
		t.Errorf("after both migrations: got %+v", got)
	}
}
