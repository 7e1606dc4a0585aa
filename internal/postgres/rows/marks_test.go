package rows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// pendingRows inserts committed rows "tx-<first>" … "tx-<last>".
func pendingRows(e *pgtest.Env, first, last int) {
	e.T.Helper()
	e.Exec(`INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason, uniq_key,
			commit_log_offset, queue_offset, body, created_at, decided_at, lease_until, last_error)
		SELECT 'tx-' || n, 'orders', 'committed', 'pending', 'k', 't', '', 'broker-a', 0, '', '', n::text, n, n, '{}', now(), now(), now(), 'x'
		FROM generate_series($1::int, $2::int) AS n`, first, last)
}

func TestMarkIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t) // and no marker runs
	a := e.CommitOrders("tx-1")[0]
	at := time.Now()
	e.Store.MarkDelivered("tx-1", at, false)
	got := e.Find("tx-1")
	if got.Delivery != txn.DeliveryDelivered || !got.DeliveredAt.Equal(at.Truncate(time.Microsecond)) {
		t.Errorf("got %s at %s", got.Delivery, got.DeliveredAt)
	}
	o := e.Store.Run(t.Context(), pgtest.SameRequest(a))
	if o.Kind != txn.OutcomeTaken || o.Transaction.Delivery != txn.DeliveryDelivered {
		t.Errorf("got %s, %+v", pgtest.OutcomeNames[o.Kind], o.Transaction)
	}
	e.Marking()
	await.True(t, pgtest.Patience, "mark in the row", func() bool { return e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) == 1 })
	if n := e.Count(`txsvc.transactions WHERE delivered_at = $1 AND body IS NULL AND lease_until IS NULL`, got.DeliveredAt); n != 1 {
		t.Error("the row does not say what was answered, or keeps what it no longer needs")
	}
	if again := e.Find("tx-1"); !again.DeliveredAt.Equal(got.DeliveredAt) {
		t.Errorf("delivered at %s, before it was %s", again.DeliveredAt, got.DeliveredAt)
	}
}

// The body stays where it is asked for, and nowhere else.
func TestMarkKeepsBodies(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithBodies("audit"))
	pendingRows(e, 1, 2)
	e.Exec(`UPDATE txsvc.transactions SET kind = 'audit' WHERE id = 'tx-1'`)
	e.Marking()
	for _, id := range []string{"tx-1", "tx-2"} {
		e.Store.MarkDelivered(id, time.Now(), false)
	}
	await.True(t, pgtest.Patience, "marks", func() bool { return e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) == 2 })
	if kept := e.Count(`txsvc.transactions WHERE body IS NOT NULL AND id = 'tx-1'`); kept != 1 {
		t.Error("the body was not kept")
	}
	if kept := e.Count(`txsvc.transactions WHERE body IS NOT NULL`); kept != 1 {
		t.Error("a body was kept that nobody asked for")
	}
}

// Marks are written together, and once a mark was seen it is seen for good.
func TestManyMarks(t *testing.T) {
	t.Parallel()
	const n = 5000
	e := pgtest.New(t)
	pendingRows(e, 1, n)
	written := func() int64 { // by all sessions of this database so far
		return pgtest.Value[int64](e, `SELECT count(DISTINCT xmin::text) FROM txsvc.transactions WHERE delivery = 'delivered'`)
	}
	e.Marking()
	at := time.Now()
	for i := range n {
		e.Store.MarkDelivered(fmt.Sprint("tx-", i+1), at, false)
		if i%100 == 0 {
			if got := e.Find(fmt.Sprint("tx-", i+1)); got.Delivery != txn.DeliveryDelivered {
				t.Fatalf("tx-%d is %s after its mark", i+1, got.Delivery)
			}
		}
	}
	await.True(t, pgtest.Patience, "marks in all rows", func() bool { return e.Count(`txsvc.transactions WHERE delivery = 'pending'`) == 0 })
	if got := e.Count(`txsvc.transactions WHERE body IS NULL AND last_error IS NULL AND lease_until IS NULL`); got != n {
		t.Errorf("got %d clean rows, want %d", got, n)
	}
	if got := written(); got > 200 {
		t.Errorf("%d marks took %d transactions", n, got)
	}
	if got, err := e.Store.Pending(t.Context()); err != nil || got != (txn.Pending{}) {
		t.Errorf("pending: got %+v, %v", got, err)
	}
}

func TestMarksAtTheEnd(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	pendingRows(e, 1, 2500)
	stop := e.Marking()
	for i := range 2500 {
		e.Store.MarkDelivered(fmt.Sprint("tx-", i+1), time.Now(), false)
	}
	stop()
	if got := e.Count(`txsvc.transactions WHERE delivery = 'pending'`); got != 0 {
		t.Errorf("%d marks were lost at the end", got)
	}
}

func TestMarksOutliveAnOutage(t *testing.T) {
	t.Parallel()
	p := pgtest.NewProxy(t)
	e := pgtest.New(t, pgtest.WithURL(p.Through))
	pendingRows(e, 1, 10)
	e.Marking()
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	await.True(t, pgtest.Patience, "first mark", func() bool { return e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) == 1 })
	p.SetDown(true)
	for i := range 10 {
		e.Store.MarkDelivered(fmt.Sprint("tx-", i+1), time.Now(), false)
	}
	await.True(t, pgtest.Patience, "attempt to write during the outage", func() bool { return p.Refusals() > 0 })
	p.SetDown(false)
	await.True(t, pgtest.Patience, "all marks", func() bool { return e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) == 10 })
}

// Only committed rows can be delivered: a mark for anything else changes nothing.
func TestMarksOfOthers(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	e.Decide(pgtest.Attempt("orders", "tx-1", pgtest.Order))
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	e.Store.MarkDelivered("nobody", time.Now(), false)
	if got := e.Find("tx-1"); got.Delivery != txn.DeliveryNone {
		t.Errorf("got %s", got.Delivery)
	}
	e.Marking()()
	if got := e.Find("tx-1"); got.Delivery != txn.DeliveryNone || got.State != txn.StateRolledBack {
		t.Errorf("got %+v", got)
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	if got, err := e.Store.Pending(t.Context()); err != nil || got != (txn.Pending{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	pendingRows(e, 1, 3)
	e.Exec(`UPDATE txsvc.transactions SET decided_at = now() - interval '1 h' WHERE id = $1`, "tx-2")
	e.Exec(`UPDATE txsvc.transactions SET lease_until = 'infinity' WHERE id = $1`, "tx-3")
	if got, err := e.Store.Pending(t.Context()); got.Count != 3 || got.Parked != 1 || got.Oldest < time.Hour || got.Oldest > time.Hour+30*time.Second || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Marks and claims do not read the whole table, also when their statements were prepared while it was empty and nothing
// has counted its rows since.
func TestGrownTableIsNotRead(t *testing.T) {
	t.Parallel()
	const n = 20_000
	e := pgtest.New(t, pgtest.WithURL(func(url string) string { return url + "&pool_max_conns=1" }))
	e.Exec(`ALTER TABLE txsvc.transactions SET (autovacuum_enabled = false)`)
	pendingRows(e, -8, -1)
	e.Exec(`VACUUM ANALYZE txsvc.transactions`)
	e.Marking()
	work := func(from, to int) {
		for i := from; i < to; i++ {
			e.Store.MarkDelivered(fmt.Sprint("tx-", i), time.Now(), false)
			written := fmt.Sprintf(`txsvc.transactions WHERE id = 'tx-%d' AND delivery = 'pending'`, i) // planned anew each time
			await.True(t, pgtest.Patience, "mark", func() bool { return e.Count(written) == 0 })
			if _, err := e.Store.ClaimDue(t.Context(), []string{"broker-a"}, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	work(-8, 0)
	pendingRows(e, 1, n)
	e.Exec(`UPDATE txsvc.transactions SET lease_until = now() + interval '1 h'`)
	read := func() int64 {
		e.Exec(`SELECT pg_stat_force_next_flush()`)
		return pgtest.Value[int64](e, `SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'transactions'`)
	}
	start := read()
	work(1, 9)
	var session int
	if err := e.Pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&session); err != nil {
		t.Fatal(err)
	}
	e.Pool.Reset() // a session tells what it has read when it ends
	await.True(t, pgtest.Patience, "end of the session", func() bool { return e.Count(`pg_stat_activity WHERE pid = $1`, session) == 0 })
	if got := read() - start; got >= n {
		t.Errorf("%d rows were read by scans of the whole table", got)
	}
}
