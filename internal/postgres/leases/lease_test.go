package leases_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestClaimDueAfterTheLease(t *testing.T) {
	t.Parallel()
	e := setup(t, pgtest.WithTiming(pgtest.Quick))
	a := e.CommitOrders("tx-1")[0]
	committed := time.Now()
	var claims []txn.Claim
	await.True(t, pgtest.Patience, "claim", func() bool { claims = e.claimDue(brokers, 10); return len(claims) > 0 })
	claimed := time.Now()
	leaseEnd := pgtest.Value[time.Time](e.Env, `SELECT decided_at FROM txsvc.transactions`).Add(pgtest.Quick.Lease())
	if claimed.Before(leaseEnd) {
		t.Errorf("claimed at %s, before the lease ended at %s", claimed, leaseEnd)
	}
	c := claims[0]
	want := txn.Claim{
		Lease: txn.Lease{ID: "tx-1", Epoch: 2, WriteBefore: c.Lease.WriteBefore}, Message: a.Message, First: a.Half.CommitLogOffset,
		CreatedAt: c.CreatedAt, Attempts: 1, FreeSince: c.FreeSince,
		Half: txn.Half{UniqKey: a.Half.UniqKey, Broker: "broker-a", CommitLogOffset: a.Half.CommitLogOffset, QueueOffset: a.Half.QueueOffset, FromCheck: true},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
	if !c.CreatedAt.Equal(e.Find("tx-1").CreatedAt) || c.Lease.WriteBefore.After(claimed.Add(pgtest.Quick.WriteWithin)) {
		t.Errorf("created %s, write before %s", c.CreatedAt, c.Lease.WriteBefore)
	}
	// Both clocks are this machine's here: the lease ended when it ended, or it seems to have a little later.
	if c.FreeSince.Before(leaseEnd.Add(-time.Millisecond)) || c.FreeSince.After(claimed) || c.FreeSince.Before(committed) {
		t.Errorf("free since %s; the lease ended at %s, claimed at %s", c.FreeSince, leaseEnd, claimed)
	}
}

func TestClaimDueKnowsHowLongARowWaited(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.CommitOrders("tx-1")
	e.expire(50 * time.Hour)
	c := e.claimDue(brokers, 1)
	if len(c) != 1 || time.Since(c[0].FreeSince).Round(time.Minute) != 50*time.Hour {
		t.Errorf("got %+v, want free for 50 h", c)
	}
}

// Claims are for committed rows of the brokers asked for that nobody holds and that are not delivered.
func TestClaimDueLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	e := setup(t, pgtest.WithTables(pgtest.Gate), pgtest.WithProgram("rejects", pgtest.Statements(`INSERT INTO gate VALUES (-1)`)))
	e.CommitOrders("due", "delivered", "elsewhere", "locked")
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("rejects", "rejected", `{}`)), txn.OutcomeRejected)
	e.Decide(pgtest.Attempt("orders", "fenced", pgtest.Order))
	e.expire(time.Second)
	e.CommitOrders("leased")
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'delivered', lease_until = NULL WHERE id = $1`, "delivered")
	e.Exec(`UPDATE txsvc.transactions SET broker = 'broker-b' WHERE id = $1`, "elsewhere")
	e.Exec(`UPDATE txsvc.transactions SET lease_until = now() - interval '1 h' WHERE id = ANY ($1)`, []string{"rejected", "fenced"})
	unlock := e.Lock(`SELECT FROM txsvc.transactions WHERE id = 'locked' FOR UPDATE`)
	if got := idsOf(e.claimDue(brokers, 10)); !slices.Equal(got, []string{"due"}) {
		t.Errorf("got %v", got)
	}
	unlock()
	if got := idsOf(e.claimDue([]string{"broker-a", "broker-b"}, 10)); !slices.Equal(got, []string{"elsewhere", "locked"}) {
		t.Errorf("got %v", got)
	}
	if got := e.claimDue(brokers, 10); len(got) > 0 {
		t.Errorf("claimed twice: %v", idsOf(got))
	}
}

func TestClaimDueTakesTheOldestFirst(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.CommitOrders("a", "b", "c")
	for i, id := range []string{"b", "c", "a"} {
		e.Exec(`UPDATE txsvc.transactions SET lease_until = now() - $2::interval WHERE id = $1`, id, time.Duration(10-i)*time.Minute)
	}
	if got := idsOf(e.claimDue(brokers, 2)); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("got %v, want the oldest two", got)
	}
}

func TestClaimersShareTheWork(t *testing.T) {
	t.Parallel()
	e := setup(t)
	const rows = 400
	e.Exec(`INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id, selector, reason, uniq_key,
			commit_log_offset, queue_offset, body, created_at, decided_at, lease_until)
		SELECT 'tx-' || n, 'orders', 'committed', 'pending', 'k', 't', '', 'broker-a', 0, '', '', n::text, n, n, '{}', now(), now(), now() - interval '1 s'
		FROM generate_series(1, $1::int) AS n`, rows)
	var mu sync.Mutex
	claimed := make(map[string]int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				claims, err := e.Store.ClaimDue(context.Background(), brokers, 7)
				if err != nil {
					t.Error(err)
				}
				if len(claims) == 0 || err != nil {
					return
				}
				if len(claims) > 7 {
					t.Errorf("got %d claims, want at most 7", len(claims))
				}
				mu.Lock()
				for _, c := range claims {
					claimed[c.Lease.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i := range rows {
		if n := claimed[fmt.Sprint("tx-", i+1)]; n != 1 {
			t.Errorf("tx-%d was claimed %d times", i+1, n)
		}
	}
}

func TestClaimOne(t *testing.T) {
	t.Parallel()
	e := setup(t)
	a := e.CommitOrders("tx-1")[0]
	claim := func(id, uniqKey string) (txn.Claim, bool) {
		t.Helper()
		c, ok, err := e.Store.ClaimOne(t.Context(), id, uniqKey)
		if err != nil {
			t.Fatal(err)
		}
		return c, ok
	}
	if _, ok := claim("tx-1", a.Half.UniqKey); ok {
		t.Error("claimed during the lease of the one who committed")
	}
	e.expire(time.Second)
	if _, ok := claim("tx-1", "another"); ok {
		t.Error("claimed with another half message")
	}
	if _, ok := claim("tx-2", a.Half.UniqKey); ok {
		t.Error("claimed another id")
	}
	unlock := e.Lock(`SELECT FROM txsvc.transactions FOR UPDATE`)
	if _, ok := claim("tx-1", a.Half.UniqKey); ok {
		t.Error("claimed what somebody is claiming")
	}
	unlock()
	c, ok := claim("tx-1", a.Half.UniqKey)
	if !ok || c.Lease.Epoch != 2 || c.Message.UniqKey != a.Half.UniqKey {
		t.Errorf("got %+v, %t", c, ok)
	}
	if _, ok := claim("tx-1", a.Half.UniqKey); ok {
		t.Error("claimed twice")
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	e := setup(t)
	a := pgtest.Attempt("orders", "tx-1", pgtest.Order)
	lease := e.Store.Run(t.Context(), a).Lease
	renew := func(lease txn.Lease) (txn.Lease, bool) {
		t.Helper()
		renewed, held, err := e.Store.Renew(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		return renewed, held
	}
	before := pgtest.Value[time.Time](e.Env, `SELECT lease_until FROM txsvc.transactions`)
	renewed, held := renew(lease)
	after := pgtest.Value[time.Time](e.Env, `SELECT lease_until FROM txsvc.transactions`)
	if !held || !renewed.WriteBefore.After(lease.WriteBefore) || !after.After(before) || renewed.Epoch != 1 {
		t.Errorf("got %+v, %t; the lease ended at %s, ends at %s", renewed, held, before, after)
	}
	e.expire(time.Second)
	if _, held := renew(renewed); held {
		t.Error("renewed a lease that had ended")
	}
	c, _, err := e.Store.ClaimOne(t.Context(), "tx-1", a.Half.UniqKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, held := renew(renewed); held {
		t.Error("renewed a lease that another has")
	}
	if _, held := renew(c.Lease); !held {
		t.Error("the new holder could not renew")
	}
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'delivered' WHERE id = $1`, "tx-1")
	if _, held := renew(c.Lease); held {
		t.Error("renewed the lease on a delivered row")
	}
}

func TestReleaseAndDefer(t *testing.T) {
	t.Parallel()
	e := setup(t)
	first := e.Store.Run(t.Context(), pgtest.Attempt("orders", "tx-1", pgtest.Order)).Lease
	if err := e.Store.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	claims := e.claimDue(brokers, 1)
	if len(claims) != 1 || claims[0].Lease.Epoch != 2 {
		t.Fatalf("after Release: got %+v", claims)
	}
	// The former holder has no say any more.
	if err := e.Store.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got := e.claimDue(brokers, 1); len(got) > 0 {
		t.Error("the former holder released the lease of another")
	}
	if err := e.Store.Defer(t.Context(), claims[0].Lease, time.Hour, "the broker is away"); err != nil {
		t.Fatal(err)
	}
	if got := e.claimDue(brokers, 1); len(got) > 0 {
		t.Error("claimed while deferred")
	}
	got := pgtest.Value[string](e.Env, `SELECT last_error || ', ' || attempts || ', ' || round(extract(epoch FROM lease_until - clock_timestamp()) / 60) FROM txsvc.transactions`)
	if got != "the broker is away, 1, 60" {
		t.Errorf("got %s", got)
	}
	if err := e.Store.Defer(t.Context(), claims[0].Lease, 0, ""); err != nil {
		t.Fatal(err)
	}
	claims = e.claimDue(brokers, 1)
	if len(claims) != 1 || claims[0].Attempts != 2 || claims[0].Lease.Epoch != 3 {
		t.Errorf("after Defer: got %+v", claims)
	}
}
