package leases_test

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// What the holder of the first lease of a tracked row does with it makes the row say by itself that its message is pending, and
// its process lets the watermark pass it.
func TestLeaseOfTrackedRow(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		do   func(s *pgtest.Store, lease txn.Lease) error
		want string // a condition about the row
	}{
		"renew": {func(s *pgtest.Store, lease txn.Lease) error {
			_, held, err := s.Renew(t.Context(), lease)
			if !held {
				t.Error("the first lease of a tracked row is not held")
			}
			return err
		}, `lease_until > decided_at + $1::interval`},
		"release": {func(s *pgtest.Store, lease txn.Lease) error { return s.Release(t.Context(), lease) }, `attempts = 1 AND lease_until <= clock_timestamp() AND $1 > interval '0'`},
		"defer": {func(s *pgtest.Store, lease txn.Lease) error { return s.Defer(t.Context(), lease, time.Hour, "why") },
			`attempts = 1 AND lease_until > clock_timestamp() + 2 * $1::interval AND last_error = 'why'`},
		"give back": {func(s *pgtest.Store, lease txn.Lease) error {
			return s.GiveBack(t.Context(), []txn.Lease{lease}, 0, "")
		},
			`attempts = 0 AND lease_until <= clock_timestamp() AND $1 > interval '0'`},
		"park": {func(s *pgtest.Store, lease txn.Lease) error { return s.Park(t.Context(), lease, "why") }, `attempts = 1 AND lease_until = 'infinity' AND $1 > interval '0'`},
		"reroute": {func(s *pgtest.Store, lease txn.Lease) error {
			_, err := s.Reroute(t.Context(), lease, txn.Route{Queue: txn.Queue{Broker: "broker-b"}}, "0A0000010001FFFFFFFF000000000001", "why")
			return err
		}, `attempts = 0 AND outbox AND broker = 'broker-b' AND lease_until <= clock_timestamp() AND $1 > interval '0'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := pgtest.New(t)
			e.Store.Tracking(t)
			a, o := e.Store.Tracked(t, "tx-1")
			lost := o.Lease
			lost.Epoch++
			if name != "renew" {
				if err := row.do(e.Store, lost); err != nil {
					t.Fatal(err)
				}
				if n := e.Count(`txsvc.transactions WHERE delivery = 'tracked'`); n != 1 {
					t.Fatal("one without the lease changed the row")
				}
				e = pgtest.New(t)
				e.Store.Tracking(t)
				a, o = e.Store.Tracked(t, "tx-1")
			}
			if err := row.do(e.Store, o.Lease); err != nil {
				t.Fatal(err)
			}
			if n := e.Count(`txsvc.transactions WHERE delivery = 'pending' AND `+row.want, e.Store.Timing().Lease()); n != 1 {
				t.Errorf("got the row %s", pgtest.Value[string](e, `SELECT to_jsonb(t)::text FROM txsvc.transactions t`))
			}
			if err := e.Store.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := e.Count(`txsvc.producers WHERE visible_before > $1`, a.CreatedAt); n != 1 {
				t.Error("the row holds the watermark back")
			}
			e.Store.MarkDelivered("tx-1", time.Now(), false)
			if err := e.Store.FlushMarks(t.Context()); err != nil || e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) != 1 {
				t.Errorf("got no mark, %v", err)
			}
		})
	}
}

// A tracked row can be claimed when its first lease has ended, and then it is pending by itself. The reply that comes late to
// the first holder still leads to a mark.
func TestClaimOneOfTrackedRow(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTiming(pgtest.Quick))
	other := e.Another(pgtest.WithTiming(pgtest.Quick))
	e.Store.Tracking(t)
	a, o := e.Store.Tracked(t, "tx-1")
	e.Exec(`UPDATE txsvc.transactions SET decided_at = now() + interval '1 hour'`)
	if _, ok, err := other.ClaimOne(t.Context(), "tx-1", a.Half.UniqKey); ok || err != nil {
		t.Fatalf("the row was claimed during its first lease: %t, %v", ok, err)
	}
	e.Exec(`UPDATE txsvc.transactions SET decided_at = now() - interval '1 s'`)
	c, ok, err := other.ClaimOne(t.Context(), "tx-1", a.Half.UniqKey)
	if !ok || err != nil || c.Lease.Epoch != o.Lease.Epoch+1 || time.Since(c.FreeSince) > time.Second {
		t.Fatalf("got the claim %+v, %t, %v", c, ok, err)
	}
	if _, held, err := e.Store.Renew(t.Context(), o.Lease); held || err != nil {
		t.Errorf("the first holder still holds it: %t, %v", held, err)
	}
	e.Store.MarkDelivered("tx-1", a.CreatedAt.Add(pgtest.Quick.Lease()), false)
	if err := e.Store.FlushMarks(t.Context()); err != nil || e.Count(`txsvc.transactions WHERE delivery = 'delivered'`) != 1 {
		t.Errorf("got no mark, %v", err)
	}
}
