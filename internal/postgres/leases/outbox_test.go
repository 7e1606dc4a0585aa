package leases_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// A row without a half message is due at once, and its first claim is known to be the first.
func TestOutboxRowIsDueAtOnce(t *testing.T) {
	t.Parallel()
	e := setup(t)
	a := pgtest.Outbox(pgtest.Attempt("orders", "tx-1", pgtest.Order))
	o := e.Commit(a)[0]
	if o.Transaction.Delivery != txn.DeliveryPending || o.Transaction.MessageID != a.Half.UniqKey {
		t.Errorf("got %+v", o.Transaction)
	}
	if got := e.claimDue(brokers, 10); len(got) > 0 {
		t.Error("the resolver claims what has no half message")
	}
	claims := e.claimOutbox("topic-orders", 10)
	if len(claims) != 1 {
		t.Fatalf("got %d claims, want 1", len(claims))
	}
	c := claims[0]
	want := txn.Claim{
		Lease: txn.Lease{ID: "tx-1", Epoch: 2, WriteBefore: c.Lease.WriteBefore}, Message: a.Message, Outbox: true, First: txn.NoHalf,
		CreatedAt: c.CreatedAt, Attempts: 1, FreeSince: c.FreeSince,
		Half: txn.Half{UniqKey: a.Half.UniqKey, Broker: "broker-a", CommitLogOffset: txn.NoHalf, QueueOffset: txn.NoHalf, FromCheck: true},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
	if got := e.claimOutbox("topic-orders", 10); len(got) > 0 {
		t.Error("claimed twice")
	}
	// A half message that was stored after all is that of an attempt that lost.
	lost := pgtest.SameRequest(a)
	resolution, _ := e.Decide(lost)
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
}

func TestClaimOutboxTakesTheOldestFirst(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.Exec(insertPending, 20, 0, 3, false)
	e.Exec(`UPDATE txsvc.transactions SET topic = 'other' WHERE shard_key = 'k2'; UPDATE txsvc.transactions SET broker = 'broker-b' WHERE shard_key = 'k3'`)
	for first := 1; first <= 20; first += 5 {
		want := fmt.Sprintf("o1-%d o1-%d o1-%d o1-%d o1-%d", first, first+1, first+2, first+3, first+4)
		if got := inOrder(e.claimOutbox("t", 5)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := e.claimOutbox("t", 5); len(got) > 0 {
		t.Errorf("claimed of another topic or broker: %s", inOrder(got))
	}
}

// One claim brings no more into memory than it should, and always something.
func TestClaimOutboxIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.Exec(insertPending, 4, 0, 1, false)
	for i, mib := range []int{5, 5, 9, 9} { // one by one, since a statement has 5 s
		e.Exec(`UPDATE txsvc.transactions SET body = repeat('x', $2::int << 20)::bytea WHERE id = $1`, fmt.Sprint("o1-", i+1), mib)
	}
	for _, want := range []int{2, 1, 1, 0} { // twice 5 MiB, of which the second begins within 8, then 9 and 9
		if got := e.claimOutbox("t", 100); len(got) != want {
			t.Errorf("got %s, want %d rows", inOrder(got), want)
		}
	}
}

// The body of a kind with body: result is the result, null when there is none.
func TestBodyIsTheResult(t *testing.T) {
	t.Parallel()
	e := setup(t, pgtest.WithProgram("some", pgtest.SQL(t, `SELECT 'ü' AS a, 1 AS n`)), pgtest.WithProgram("none", pgtest.SQL(t, `SELECT 1 WHERE false`)))
	for kind, want := range map[string]string{"some": `{"a":"ü","n":1}`, "none": `null`} {
		a := pgtest.Outbox(pgtest.Attempt(kind, kind, `{"not": "this"}`))
		a.Kind.Body = txn.BodyResult
		e.Commit(a)
		claims := e.claimOutbox("topic-"+kind, 1)
		if len(claims) != 1 || string(claims[0].Message.Body) != want {
			t.Errorf("%s: got %+v, want %s", kind, claims, want)
		}
		if n := e.Count(`txsvc.transactions WHERE id = $1 AND body IS NULL`, kind); n != 1 {
			t.Errorf("%s: the payload is kept", kind)
		}
	}
}

// What was given back unsent does not count as an attempt; what was put aside waits for an operator.
func TestGiveBackAndPark(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.Exec(insertPending, 3, 0, 1, false)
	leases := func(claims []txn.Claim) (list []txn.Lease) {
		for _, c := range claims {
			list = append(list, c.Lease)
		}
		return list
	}
	claims := e.claimOutbox("t", 2)
	if err := e.Store.GiveBack(t.Context(), leases(claims), 0, "the broker is away"); err != nil {
		t.Fatal(err)
	}
	if n := e.Count(`txsvc.transactions WHERE attempts = 0 AND last_error = 'the broker is away' AND lease_until <= now()`); n != 2 {
		t.Errorf("%d rows were given back, want 2", n)
	}
	again := e.claimOutbox("t", 10)
	if len(again) != 3 || again[1].Attempts != 1 || again[1].Lease.Epoch != 3 {
		t.Errorf("got %+v", again)
	}
	if err := e.Store.GiveBack(t.Context(), leases(claims), 0, ""); err != nil { // the former holder has no say any more
		t.Fatal(err)
	}
	if got := e.claimOutbox("t", 10); len(got) > 0 {
		t.Errorf("the former holder gave back %s", inOrder(got))
	}
	if err := e.Store.Park(t.Context(), again[0].Lease, "too large"); err != nil {
		t.Fatal(err)
	}
	id := again[0].Lease.ID
	if got := e.Find(id); !got.Parked || got.PendingReason != "too large" {
		t.Errorf("got %+v, want it put aside, with the reason", got)
	}
	for range 2 {
		got, err := e.Store.Redeliver(t.Context(), id)
		if err != nil || got.Parked || got.PendingReason != "" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	e.Exec(`UPDATE txsvc.transactions SET lease_until = now() + interval '1 h' WHERE id <> $1`, id)
	if got := e.claimOutbox("t", 10); inOrder(got) != id || got[0].Attempts != 2 {
		t.Errorf("got %+v, want %s in its second attempt", got, id)
	}
	if _, err := e.Store.Redeliver(t.Context(), id); err != nil { // it is being worked on: that is left alone
		t.Fatal(err)
	}
	if got := e.claimOutbox("t", 10); len(got) > 0 {
		t.Error("redelivering ended a lease")
	}
}

// A large backlog is not read for each statement about some of its rows, also when nothing has counted its rows.
func TestBacklogIsNotRead(t *testing.T) {
	t.Parallel()
	const n = 20_000
	e := setup(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }))
	e.Exec(`ALTER TABLE txsvc.transactions SET (autovacuum_enabled = false)`)
	e.Exec(insertPending, n/20, 100, 110, false)
	e.Exec(insertPending, n/20, 0, 10, true)
	read := func() int64 {
		e.Exec(`SELECT pg_stat_force_next_flush()`)
		return pgtest.Value[int64](e.Env, `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'transactions')
			+ (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'transactions')`)
	}
	start := read()
	for range 5 {
		claims := append(e.claimOutbox("t", 50), e.claimLines(10, "k1", "k2", "k3")...)
		if len(claims) != 80 {
			t.Fatalf("got %d claims, want 80", len(claims))
		}
		var leases []txn.Lease
		var ids []string
		for i, c := range claims {
			if i%2 == 0 {
				ids = append(ids, c.Lease.ID)
			} else {
				leases = append(leases, c.Lease)
			}
		}
		if err := e.Store.GiveBack(t.Context(), leases, 0, ""); err != nil {
			t.Fatal(err)
		}
		if err := e.Store.MarkAll(t.Context(), ids, time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Store.Groups(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.Store.DueLines(t.Context(), "t", "", brokers, 100); err != nil {
			t.Fatal(err)
		}
		e.Exec(`UPDATE txsvc.transactions SET lease_until = now() - interval '1 h' WHERE id = ANY ($1)`, []string{"k1-1"})
	}
	session := pgtest.Value[int](&pgtest.Env{T: t, Side: e.Pool}, `SELECT pg_backend_pid()`)
	e.Pool.Reset() // a session tells what it has read when it ends
	await.True(t, pgtest.Patience, "end of the session", func() bool { return e.Count(`pg_stat_activity WHERE pid = $1`, session) == 0 })
	if got := read() - start; got > n/2 {
		t.Errorf("%d entries were read of a backlog of %d", got, n)
	}
}
