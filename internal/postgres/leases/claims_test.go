package leases_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestClaimLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change string // of the rows k1-1 … k1-4, k2-1 … k2-4
		limit  int
		want   string
	}{
		"all":                   {`SELECT`, 10, "k1-1 k1-2 k1-3 k1-4 k2-1 k2-2 k2-3 k2-4"},
		"limited":               {`SELECT`, 2, "k1-1 k1-2 k2-1 k2-2"},
		"head is worked on":     {`UPDATE txsvc.transactions SET lease_until = now() + interval '1 h' WHERE id = 'k1-1'`, 10, "k2-1 k2-2 k2-3 k2-4"},
		"head is put aside":     {`UPDATE txsvc.transactions SET lease_until = 'infinity' WHERE id = 'k1-1'`, 10, "k2-1 k2-2 k2-3 k2-4"},
		"follower is worked on": {`UPDATE txsvc.transactions SET lease_until = now() + interval '1 h' WHERE id = 'k1-3'`, 10, "k1-1 k1-2 k2-1 k2-2 k2-3 k2-4"},
		"head is delivered":     {`UPDATE txsvc.transactions SET delivery = 'delivered' WHERE id = 'k1-1'`, 10, "k1-2 k1-3 k1-4 k2-1 k2-2 k2-3 k2-4"},
		"broker is away":        {`UPDATE txsvc.transactions SET broker = 'broker-b' WHERE id IN ('k1-1', 'k2-3')`, 10, "k2-1 k2-2"},
		"large bodies":          {`UPDATE txsvc.transactions SET body = repeat('x', 5 << 20)::bytea WHERE shard_key = 'k1'`, 10, "k1-1 k1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := setup(t)
			e.standing(4, 2)
			e.Exec(tc.change)
			if got := inOrder(e.claimLines(tc.limit, "k1", "k2", "k3")); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if got := inOrder(e.claimLines(10, "k1")); strings.HasPrefix(got, "k1-1") {
				t.Errorf("claimed twice: %s", got)
			}
		})
	}
}

// A row that somebody has locked for a moment ends the line: those behind it are not claimed past it.
func TestClaimLinesStopsAtALockedRow(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.standing(4, 1)
	unlock := e.Lock(`SELECT FROM txsvc.transactions WHERE id = 'k1-3' FOR UPDATE`)
	if got := inOrder(e.claimLines(10, "k1")); got != "k1-1 k1-2" {
		t.Errorf("got %s, want the two before the locked row", got)
	}
	unlock()
	if got := inOrder(e.claimLines(10, "k1")); got != "" {
		t.Errorf("got %s, although the head is worked on", got)
	}
}

// Of many that claim and deliver lines at once, each row is delivered once and in order.
func TestClaimersKeepTheOrder(t *testing.T) {
	t.Parallel()
	const rows, keys = 200, 3
	e := setup(t)
	e.standing(rows, keys)
	var mu sync.Mutex
	delivered := make(map[string][]int64)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				claims, err := e.Store.ClaimLines(context.Background(), "t", []string{"k1", "k2", "k3"}, brokers, 5)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, c := range claims {
					delivered[c.Message.ShardKey] = append(delivered[c.Message.ShardKey], c.Line)
					e.Store.MarkDelivered(c.Lease.ID, time.Now(), true)
				}
				done := len(delivered["k1"])+len(delivered["k2"])+len(delivered["k3"]) >= rows*keys
				mu.Unlock()
				if err := e.Store.FlushMarks(context.Background()); err != nil {
					t.Error(err)
				}
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	for key, lines := range delivered {
		if !slices.IsSorted(lines) || len(lines) != rows {
			t.Errorf("%s: %d rows were delivered, in order: %t", key, len(lines), slices.IsSorted(lines))
		}
	}
}

// A check-back's claim leaves a row alone while one before it is pending.
func TestClaimOneOfALine(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.standing(2, 1)
	claim := func() bool {
		t.Helper()
		_, ok, err := e.Store.ClaimOne(t.Context(), "k1-2", "1-2")
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if claim() {
		t.Error("claimed before the one before it")
	}
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'delivered' WHERE id = 'k1-1'`)
	if !claim() {
		t.Error("not claimed, although it is the head")
	}
}

func TestDueLines(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.standing(3, 5)
	e.Exec(`UPDATE txsvc.transactions SET lease_until = 'infinity' WHERE id = 'k2-1';
		UPDATE txsvc.transactions SET lease_until = now() + interval '1 h' WHERE id = 'k3-2';
		UPDATE txsvc.transactions SET broker = 'broker-b' WHERE id = 'k4-1'`)
	look := func(after string, limit int) string {
		t.Helper()
		due, last, err := e.Store.DueLines(t.Context(), "t", after, brokers, limit)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s, last %q", strings.Join(due, " "), last)
	}
	for _, tc := range []struct {
		after string
		limit int
		want  string
	}{
		{"", 10, `k1 k3 k5, last ""`}, {"", 2, `k1, last "k2"`}, {"k2", 2, `k3, last "k4"`}, {"k4", 2, `k5, last ""`}, {"k5", 2, `, last ""`},
	} {
		if got := look(tc.after, tc.limit); got != tc.want {
			t.Errorf("after %q: got %s, want %s", tc.after, got, tc.want)
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	e := setup(t)
	e.Exec(insertPending, 20, 0, 4, false)
	e.standing(20, 4)
	e.Exec(`UPDATE txsvc.transactions SET topic = 'u' WHERE shard_key IN ('k2', 'k3'); UPDATE txsvc.transactions SET broker = 'broker-b' WHERE shard_key = 'k3';
		UPDATE txsvc.transactions SET topic = 'gone', delivery = 'delivered' WHERE shard_key = 'k4'`)
	got, err := e.Store.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []txn.Group{{Broker: "broker-a", Topic: "t"}, {Broker: "broker-a", Topic: "u"}, {Broker: "broker-b", Topic: "u"}, {Topic: "t"}, {Topic: "u"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}
