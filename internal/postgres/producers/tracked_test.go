package producers_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/postgres/retention"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// delivery is the column of a row as it stands.
func delivery(e *pgtest.Env, id string) string {
	e.T.Helper()
	return pgtest.Value[string](e, `SELECT delivery FROM txsvc.transactions WHERE id = $1`, id)
}

func flushed(t *testing.T, s *pgtest.Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T, s *pgtest.Store, id string) *txn.Transaction {
	t.Helper()
	found, err := s.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A tracked row is written once. Its process knows at once that its message is visible, all others with the watermark, and
// everybody tells the same time.
func TestTrackedRowIsDelivered(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	other := e.Another()
	e.Store.Tracking(t)
	e.Store.Tracked(t, "tx-0")
	e.Store.MarkDelivered("tx-0", time.Now(), false)
	_, o := e.Store.Tracked(t, "tx-1")
	want := func(what string, own, others txn.Delivery) {
		t.Helper()
		if got := find(t, e.Store, "tx-1").Delivery; got != own {
			t.Errorf("%s: the process says %s, want %s", what, got, own)
		}
		if got := find(t, other, "tx-1").Delivery; got != others {
			t.Errorf("%s: another one says %s, want %s", what, got, others)
		}
		if got := pgtest.Value[string](e, `SELECT delivery FROM txsvc.current WHERE id = 'tx-1'`); got != string(others) {
			t.Errorf("%s: the view says %s, want %s", what, got, others)
		}
		pending, err := other.Pending(t.Context())
		if err != nil || pending.Count > 0 != (others == txn.DeliveryPending) {
			t.Errorf("%s: got %d pending, %v", what, pending.Count, err)
		}
		old := `UPDATE txsvc.transactions SET decided_at = decided_at - interval '1 day'`
		e.Exec(old + `; UPDATE txsvc.retention SET next_at = now()`)
		sweeper := retention.New(e.Store.DB, time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if others == txn.DeliveryPending {
			_, _, err = sweeper.Step(t.Context())
		}
		if err != nil || e.Count(`txsvc.transactions WHERE id = 'tx-1'`) != 1 {
			t.Fatalf("%s: %v, or retention deleted a row whose message is not visible", what, err)
		}
		e.Exec(`UPDATE txsvc.transactions SET decided_at = decided_at + interval '1 day'`)
	}
	want("committed", txn.DeliveryPending, txn.DeliveryPending)
	flushed(t, e.Store)
	want("the watermark stops before it", txn.DeliveryPending, txn.DeliveryPending)
	at := time.Now().Truncate(time.Microsecond).UTC()
	e.Store.MarkDelivered("tx-1", at, false)
	e.Store.Settle(o.Transaction.CreatedAt)
	want("confirmed", txn.DeliveryDelivered, txn.DeliveryPending)
	inMemory := find(t, e.Store, "tx-1")
	flushed(t, e.Store)
	want("before the watermark", txn.DeliveryDelivered, txn.DeliveryDelivered)
	if diff := cmp.Diff(inMemory, find(t, e.Store, "tx-1")); diff != "" {
		t.Errorf("the process (-in memory +read):\n%s", diff)
	}
	if diff := cmp.Diff(inMemory, find(t, other, "tx-1")); diff != "" || !inMemory.DeliveredAt.Equal(at) {
		t.Errorf("another process, want delivered at %s (-own +other):\n%s", at, diff)
	}
	if delivery(e, "tx-1") != "tracked" {
		t.Errorf("the row was marked: %s", delivery(e, "tx-1"))
	}
	e.Exec(`UPDATE txsvc.transactions SET decided_at = decided_at - interval '1 day'; UPDATE txsvc.retention SET next_at = now()`)
	if _, n, err := retention.New(e.Store.DB, time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)).Step(t.Context()); n == 0 || err != nil {
		t.Errorf("retention deleted %d rows, %v", n, err)
	}
}

// What is handed over is pending with its first lease, and the watermark passes it.
func TestHandOver(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	e.Store.Tracking(t)
	a, _ := e.Store.Tracked(t, "tx-1")
	e.Store.HandOver(a.CreatedAt)
	flushed(t, e.Store)
	if n := e.Count(`txsvc.transactions t JOIN txsvc.producers p ON t.created_at < p.visible_before
		WHERE t.delivery = 'pending' AND t.attempts = 1 AND t.lease_until = t.decided_at + $1::interval`, e.Store.Timing().Lease()); n != 1 {
		t.Errorf("got the row %s", pgtest.Value[string](e, `SELECT to_jsonb(t)::text FROM txsvc.transactions t`))
	}
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	if err := e.Store.FlushMarks(t.Context()); err != nil || delivery(e, "tx-1") != "delivered" {
		t.Errorf("got %s, %v, want a mark", delivery(e, "tx-1"), err)
	}
}

// A row in the place of a fence is explicit, also when its attempt was to be tracked, and gets a mark.
func TestReplacedRowIsMarked(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	e.Store.Tracking(t)
	e.Decide(pgtest.Attempt("orders", "tx-1", pgtest.Order))
	a, _ := e.Store.Tracked(t, "tx-1")
	if got := delivery(e, "tx-1"); got != "pending" {
		t.Fatalf("got %s, want a row that is pending by itself", got)
	}
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	e.Store.Settle(a.CreatedAt)
	flushed(t, e.Store)
	if err := e.Store.FlushMarks(t.Context()); err != nil || delivery(e, "tx-1") != "delivered" {
		t.Errorf("got %s, %v, want a mark", delivery(e, "tx-1"), err)
	}
}

// The rest of a process that is not heard of any more is adopted: what is not before its watermark, up to the ceiling, when its
// first lease has ended.
func TestAdopt(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTiming(pgtest.Quick))
	other := e.Another(pgtest.WithTiming(pgtest.Quick))
	prefix := e.Store.Tracking(t)
	e.Store.Tracked(t, "visible")
	e.Store.MarkDelivered("visible", time.Now(), false)
	e.Store.Tracked(t, "left")
	flushed(t, e.Store)
	adopt := func() int64 {
		t.Helper()
		n, err := other.Adopt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	e.Exec(`UPDATE txsvc.producers SET seen_at = now() + interval '1 hour'`) // it lives
	await.True(t, pgtest.Patience, "the end of the lease", func() bool {
		return e.Count(`txsvc.transactions WHERE id = 'left' AND decided_at < now() - $1::interval`, pgtest.Quick.Lease()) == 1
	})
	if n := adopt(); n != 0 {
		t.Fatalf("%d rows of a living process were adopted", n)
	}
	e.Exec(`UPDATE txsvc.producers SET seen_at = now() - interval '1 hour'`) // it is gone
	if n := adopt(); n != 1 || delivery(e, "left") != "pending" || delivery(e, "visible") != "tracked" {
		t.Fatalf("got %d rows adopted, left is %s, visible is %s", n, delivery(e, "left"), delivery(e, "visible"))
	}
	claims, err := other.ClaimDue(t.Context(), []string{"broker-a"}, 10)
	if err != nil || len(claims) != 1 || claims[0].Lease.ID != "left" || claims[0].Attempts != 2 {
		t.Fatalf("got the claims %+v, %v", claims, err)
	}
	// Many rows at once, beside one beyond the ceiling, one of another process, and one that was written a moment ago.
	e.Exec(`UPDATE txsvc.producers SET ceiling = visible_before + interval '1 minute' WHERE prefix = $1`, prefix)
	copies := func(id, changes string) {
		t.Helper()
		e.Exec(fmt.Sprintf(`INSERT INTO txsvc.transactions SELECT (jsonb_populate_record(t, jsonb_build_object('id', %s,
			'created_at', p.visible_before + n * interval '1 us', 'decided_at', now() - interval '1 minute', 'delivery', 'tracked') || %s)).*
			FROM txsvc.transactions t, txsvc.producers p, generate_series(0, 1000) AS n WHERE t.id = 'visible' AND (n = 0 OR %s LIKE 'many%%')`, id, changes, id))
	}
	copies(`'many-' || n`, `'{}'`)
	copies(`'beyond'`, `jsonb_build_object('created_at', p.ceiling)`)
	copies(`'before'`, `jsonb_build_object('created_at', p.visible_before - interval '1 us')`)
	copies(`'foreign'`, `jsonb_build_object('uniq_key', repeat('F', 32))`)
	copies(`'young'`, `jsonb_build_object('decided_at', now() + interval '1 hour')`)
	if first, second, third := adopt(), adopt(), adopt(); first != 1000 || second != 1 || third != 0 {
		t.Errorf("got %d, %d and %d rows adopted, want 1000, 1 and 0", first, second, third)
	}
	for _, id := range []string{"beyond", "before", "foreign", "young"} {
		if delivery(e, id) != "tracked" {
			t.Errorf("the row %q was adopted", id)
		}
	}
}

// A local transaction of a process that is gone may commit after the first look. Its row is found by a later one.
func TestAdoptLateRow(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTiming(pgtest.Quick))
	other := e.Another(pgtest.WithTiming(pgtest.Quick))
	e.Store.Tracking(t)
	a := e.Store.Begun(t, pgtest.Attempt("orders", "tx-1", pgtest.Order))
	e.Exec(`UPDATE txsvc.producers SET seen_at = now() - interval '1 hour'`)
	if n, err := other.Adopt(t.Context()); n != 0 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)
	await.True(t, pgtest.Patience, "an adopted row", func() bool {
		n, err := other.Adopt(t.Context())
		return err == nil && n == 1
	})
}

// KeepTrack writes watermarks by itself, and at the end leaves nothing to be adopted.
func TestKeepTrack(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTiming(pgtest.Quick))
	other := e.Another(pgtest.WithTiming(pgtest.Quick))
	e.Store.Tracking(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.Store.KeepTrack(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	e.Store.Tracked(t, "tx-1")
	e.Store.MarkDelivered("tx-1", time.Now(), false)
	await.True(t, pgtest.Patience, "the watermark", func() bool { return find(t, other, "tx-1").Delivery == txn.DeliveryDelivered })
	a, _ := e.Store.Tracked(t, "tx-2")
	e.Store.HandOver(a.CreatedAt)
	e.Store.Tracked(t, "tx-3")
	e.Store.MarkDelivered("tx-3", time.Now(), false)
	cancel()
	<-done
	if delivery(e, "tx-2") != "pending" || find(t, other, "tx-3").Delivery != txn.DeliveryDelivered {
		t.Errorf("got %s and %s", delivery(e, "tx-2"), find(t, other, "tx-3").Delivery)
	}
	if n := e.Count(`txsvc.producers WHERE visible_before < ceiling`); n != 0 {
		t.Error("there is something to look for")
	}
}

// A half message is not fenced while its attempt may be under way, whoever is asked.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t)
	other := e.Another()
	e.Store.Tracking(t)
	storedNow := func(a *txn.Attempt) {
		t.Helper()
		a.Half.StoredAt = time.Now().Truncate(time.Millisecond)
		await.True(t, pgtest.Patience, "the next millisecond", func() bool { return time.Since(a.Half.StoredAt) > 2*time.Millisecond })
	}
	for name, row := range map[string]struct {
		end  func(a *txn.Attempt)
		want txn.Resolution
	}{
		"under way":              {func(*txn.Attempt) {}, txn.ResolutionUndecided},
		"the end is not written": {func(a *txn.Attempt) { e.Store.Settle(a.CreatedAt) }, txn.ResolutionUndecided},
		"settled":                {func(a *txn.Attempt) { e.Store.Settle(a.CreatedAt); flushed(t, e.Store) }, txn.ResolutionRollback},
		"gone":                   {func(*txn.Attempt) { e.Exec(`UPDATE txsvc.producers SET seen_at = now() - interval '9 s'`) }, txn.ResolutionRollback},
	} {
		a := e.Store.Begun(t, pgtest.Attempt("orders", name, pgtest.Order))
		storedNow(a)
		row.end(a)
		resolution, _, err := other.Decide(t.Context(), a.Message, a.Half)
		if err != nil || resolution != row.want {
			t.Errorf("%s: got %d, %v, want %d", name, resolution, err, row.want)
		}
		e.Store.Settle(a.CreatedAt)
		flushed(t, e.Store)
	}
	a := e.Store.Begun(t, pgtest.Attempt("orders", "own", pgtest.Order))
	storedNow(a)
	resolution, _ := e.Decide(a)
	pgtest.WantResolution(t, resolution, txn.ResolutionUndecided)
	e.Store.Settle(a.CreatedAt)
	resolution, _ = e.Decide(a)
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
}
