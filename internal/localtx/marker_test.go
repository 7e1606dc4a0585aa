package localtx_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"
)

// marking runs the store's marker until the test ends, or stop is called.
func (e *env) marking() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.store.Marks.Write(ctx) })
	stop = func() { cancel(); wg.Wait() }
	e.t.Cleanup(stop)
	return stop
}

// pendingRows inserts committed rows "tx-1" … "tx-n".
func (e *env) pendingRows(n int) { e.pendingRowsFrom(1, n) }

func (e *env) pendingRowsFrom(first, last int) {
	e.t.Helper()
	e.exec(`INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason, uniq_key,
			commit_log_offset, queue_offset, body, created_at, decided_at, lease_until, last_error)
		SELECT 'tx-' || n, 'orders', 'committed', 'pending', 'k', 't', '', 'broker-a', 0, '', '', n::text, n, n, '{}', now(), now(), now(), 'x'
		FROM generate_series($1::int, $2::int) AS n`, first, last)
}

func TestMarkIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	e := setup(t) // and no marker runs
	a := e.commit("tx-1")[0]
	at := time.Now()
	e.store.MarkDelivered("tx-1", at, false)
	got := e.find("tx-1")
	if got.Delivery != txn.DeliveryDelivered || !got.DeliveredAt.Equal(at.Truncate(time.Microsecond)) {
		t.Errorf("got %s at %s", got.Delivery, got.DeliveredAt)
	}
	o := e.store.Run(t.Context(), sameRequest(a))
	if o.Kind != txn.OutcomeTaken || o.Transaction.Delivery != txn.DeliveryDelivered {
		t.Errorf("got %s, %+v", outcomeNames[o.Kind], o.Transaction)
	}
	e.marking()
	await.True(t, patience, "mark in the row", func() bool { return e.count(`txsvc.transactions WHERE delivery = 'delivered'`) == 1 })
	if n := e.count(`txsvc.transactions WHERE delivered_at = $1 AND body IS NULL AND lease_until IS NULL`, got.DeliveredAt); n != 1 {
		t.Error("the row does not say what was answered, or keeps what it no longer needs")
	}
	if again := e.find("tx-1"); !again.DeliveredAt.Equal(got.DeliveredAt) {
		t.Errorf("delivered at %s, before it was %s", again.DeliveredAt, got.DeliveredAt)
	}
}

// The body stays where it is asked for, and nowhere else.
func TestMarkKeepsBodies(t *testing.T) {
	t.Parallel()
	e := setup(t, withBodies("audit"))
	e.pendingRows(2)
	e.exec(`UPDATE txsvc.transactions SET kind = 'audit' WHERE id = 'tx-1'`)
	e.marking()
	for _, id := range []string{"tx-1", "tx-2"} {
		e.store.MarkDelivered(id, time.Now(), false)
	}
	await.True(t, patience, "marks", func() bool { return e.count(`txsvc.transactions WHERE delivery = 'delivered'`) == 2 })
	if kept := e.count(`txsvc.transactions WHERE body IS NOT NULL AND id = 'tx-1'`); kept != 1 {
		t.Error("the body was not kept")
	}
	if kept := e.count(`txsvc.transactions WHERE body IS NOT NULL`); kept != 1 {
		t.Error("a body was kept that nobody asked for")
	}
}

// Marks are written together, and once a mark was seen it is seen for good.
func TestManyMarks(t *testing.T) {
	t.Parallel()
	const n = 5000
	e := setup(t)
	e.pendingRows(n)
	written := func() int64 { // by all sessions of this database so far
		return value[int64](e, `SELECT count(DISTINCT xmin::text) FROM txsvc.transactions WHERE delivery = 'delivered'`)
	}
	e.marking()
	at := time.Now()
	for i := range n {
		e.store.MarkDelivered(fmt.Sprint("tx-", i+1), at, false)
		if i%100 == 0 {
			if got := e.find(fmt.Sprint("tx-", i+1)); got.Delivery != txn.DeliveryDelivered {
				t.Fatalf("tx-%d is %s after its mark", i+1, got.Delivery)
			}
		}
	}
	await.True(t, patience, "marks in all rows", func() bool { return e.count(`txsvc.transactions WHERE delivery = 'pending'`) == 0 })
	if got := e.count(`txsvc.transactions WHERE body IS NULL AND last_error IS NULL AND lease_until IS NULL`); got != n {
		t.Errorf("got %d clean rows, want %d", got, n)
	}
	if got := written(); got > 200 {
		t.Errorf("%d marks took %d transactions", n, got)
	}
	if got, err := e.store.Pending(t.Context()); err != nil || got != (txn.Pending{}) {
		t.Errorf("pending: got %+v, %v", got, err)
	}
}

func TestMarksAtTheEnd(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.pendingRows(2500)
	stop := e.marking()
	for i := range 2500 {
		e.store.MarkDelivered(fmt.Sprint("tx-", i+1), time.Now(), false)
	}
	stop()
	if got := e.count(`txsvc.transactions WHERE delivery = 'pending'`); got != 0 {
		t.Errorf("%d marks were lost at the end", got)
	}
}

func TestMarksOutliveAnOutage(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	e := setup(t, withURL(p.through))
	e.pendingRows(10)
	e.marking()
	e.store.MarkDelivered("tx-1", time.Now(), false)
	await.True(t, patience, "first mark", func() bool { return e.count(`txsvc.transactions WHERE delivery = 'delivered'`) == 1 })
	p.setDown(true)
	for i := range 10 {
		e.store.MarkDelivered(fmt.Sprint("tx-", i+1), time.Now(), false)
	}
	await.True(t, patience, "attempt to write during the outage", func() bool { return p.refusals() > 0 })
	p.setDown(false)
	await.True(t, patience, "all marks", func() bool { return e.count(`txsvc.transactions WHERE delivery = 'delivered'`) == 10 })
}

// Only committed rows can be delivered: a mark for anything else changes nothing.
func TestMarksOfOthers(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.decide(attempt("orders", "tx-1", order))
	e.store.MarkDelivered("tx-1", time.Now(), false)
	e.store.MarkDelivered("nobody", time.Now(), false)
	if got := e.find("tx-1"); got.Delivery != txn.DeliveryNone {
		t.Errorf("got %s", got.Delivery)
	}
	e.marking()()
	if got := e.find("tx-1"); got.Delivery != txn.DeliveryNone || got.State != txn.StateRolledBack {
		t.Errorf("got %+v", got)
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	e := setup(t)
	if got, err := e.store.Pending(t.Context()); err != nil || got != (txn.Pending{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	e.pendingRows(3)
	e.exec(`UPDATE txsvc.transactions SET decided_at = now() - interval '1 h' WHERE id = $1`, "tx-2")
	e.exec(`UPDATE txsvc.transactions SET lease_until = 'infinity' WHERE id = $1`, "tx-3")
	if got, err := e.store.Pending(t.Context()); got.Count != 3 || got.Parked != 1 || got.Oldest < time.Hour || got.Oldest > time.Hour+30*time.Second || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Marks and claims do not read the whole table, also when their statements were prepared while it was empty and nothing
// has counted its rows since.
func TestGrownTableIsNotRead(t *testing.T) {
	t.Parallel()
	const n = 20_000
	e := setup(t, withURL(func(url string) string { return url + "&pool_max_conns=1" }))
	e.exec(`ALTER TABLE txsvc.transactions SET (autovacuum_enabled = false)`)
	e.pendingRowsFrom(-8, -1)
	e.exec(`VACUUM ANALYZE txsvc.transactions`)
	e.marking()
	work := func(from, to int) {
		for i := from; i < to; i++ {
			e.store.MarkDelivered(fmt.Sprint("tx-", i), time.Now(), false)
			written := fmt.Sprintf(`txsvc.transactions WHERE id = 'tx-%d' AND delivery = 'pending'`, i) // planned anew each time
			await.True(t, patience, "mark", func() bool { return e.count(written) == 0 })
			e.claimDue(brokers, 1)
		}
	}
	work(-8, 0)
	e.pendingRows(n)
	e.exec(`UPDATE txsvc.transactions SET lease_until = now() + interval '1 h'`)
	read := func() int64 {
		e.exec(`SELECT pg_stat_force_next_flush()`)
		return value[int64](e, `SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'transactions'`)
	}
	start := read()
	work(1, 9)
	var session int
	if err := e.pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&session); err != nil {
		t.Fatal(err)
	}
	e.pool.Reset() // a session tells what it has read when it ends
	await.True(t, patience, "end of the session", func() bool { return e.count(`pg_stat_activity WHERE pid = $1`, session) == 0 })
	if got := read() - start; got >= n {
		t.Errorf("%d rows were read by scans of the whole table", got)
	}
}
