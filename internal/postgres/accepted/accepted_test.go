package accepted_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}

func setup(t *testing.T) *accepted.Lists {
	t.Helper()
	db, err := postgres.Open(t.Context(), stacktest.NewMigrated(t), txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return accepted.New(db)
}

func queues(texts ...string) []txn.Queue {
	var list []txn.Queue
	for _, text := range texts {
		q, err := txn.ParseQueue(text)
		if err != nil {
			panic(err)
		}
		list = append(list, q)
	}
	return list
}

// TestFirstListIsOne: whoever comes first records the list, and all go by it.
func TestFirstListIsOne(t *testing.T) {
	t.Parallel()
	stored := setup(t)
	lists := make([]txn.AcceptedQueues, 8)
	var wg sync.WaitGroup
	for i := range lists {
		wg.Go(func() {
			var err error
			mine := queues("broker-a:0")
			if i%2 == 1 {
				mine = queues("broker-a:0", "broker-b:0")
			}
			if lists[i], err = stored.AcceptFirst(t.Context(), "orders", mine, ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, list := range lists[1:] {
		if diff := cmp.Diff(lists[0], list, ignoreTimes); diff != "" {
			t.Errorf("two lists were told (-first +other):\n%s", diff)
		}
	}
	if lists[0].Version != 1 || lists[0].Pause != 0 || lists[0].Previous != nil {
		t.Errorf("got %+v, want version 1 in use", lists[0])
	}
	none, err := stored.AcceptedQueues(t.Context(), []string{"payments"})
	if err != nil || len(none) != 0 {
		t.Errorf("another topic: got %v, %v", none, err)
	}
}

var ignoreTimes = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".AcceptedAt" }, cmp.Ignore())

// TestAcceptance: a list takes the place of the one that its operator saw, and of no other; what was in use stays in use
// for the pause.
func TestAcceptance(t *testing.T) {
	t.Parallel()
	stored := setup(t)
	one, two, three := queues("b:0"), queues("b:0", "b:1"), queues("b:0", "b:1", "b:2")
	accept := func(list []txn.Queue, version int64, pause time.Duration) txn.AcceptedQueues {
		t.Helper()
		accepted, err := stored.Accept(t.Context(), "orders", list, "", version, pause)
		if err != nil {
			t.Fatal(err)
		}
		return accepted
	}
	if got := accept(one, 0, time.Hour); got.Version != 1 || got.Pause != 0 {
		t.Errorf("the first list: got %+v, want it in use at once", got)
	}
	for _, version := range []int64{0, 2} {
		if _, err := stored.Accept(t.Context(), "orders", two, "", version, 0); !errors.Is(err, accepted.ErrOtherVersion) {
			t.Errorf("in place of version %d: got %v, want ErrOtherVersion", version, err)
		}
	}
	got := accept(two, 1, time.Hour)
	if diff := cmp.Diff(one, got.Previous); got.Version != 2 || got.Pause < 59*time.Minute || diff != "" {
		t.Errorf("got %+v, want a pause of an hour; previous (-want +got):\n%s", got, diff)
	}
	// One that replaces a list that was never in use: the first is still the one before.
	got = accept(three, 2, 0)
	if diff := cmp.Diff(one, got.Previous); got.Pause != 0 || diff != "" {
		t.Errorf("got %+v; previous (-want +got):\n%s", got, diff)
	}
	got = accept(one, 3, time.Millisecond)
	if diff := cmp.Diff(three, got.Previous); diff != "" {
		t.Errorf("previous (-want +got):\n%s", diff)
	}
	read, err := stored.AcceptedQueues(t.Context(), []string{"orders", "payments"})
	if diff := cmp.Diff(one, read["orders"].Queues); err != nil || len(read) != 1 || read["orders"].Version != 4 || diff != "" {
		t.Errorf("got %+v, %v; queues (-want +got):\n%s", read, err, diff)
	}
}
