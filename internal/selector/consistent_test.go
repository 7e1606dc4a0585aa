package selector

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/txn"
)

// manyKeys is the number of keys that shares are measured with.
const manyKeys = 25_000

// sigmas is the allowed distance of a measured share from the expected one. A correct hash exceeds it once in 1.7
// million, and the keys are the same in each run.
const sigmas = 5

func sequentialKeys() []string {
	keys := make([]string, manyKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("customer-%07d", i)
	}
	return keys
}

// wantShare checks a count of successes in n trials.
func wantShare(t *testing.T, what string, got, n int, want float64) {
	t.Helper()
	deviation := math.Sqrt(float64(n) * want * (1 - want))
	if off := float64(got) - float64(n)*want; math.Abs(off) > sigmas*deviation {
		t.Errorf("%s: got %d of %d (%.3f %%), want %.3f %%: off by %.1f standard deviations",
			what, got, n, 100*float64(got)/float64(n), 100*want, off/deviation)
	}
}

// queuesOf returns n queues on each broker, sorted.
func queuesOf(n int, brokers ...string) []txn.Queue {
	var queues []txn.Queue
	for _, broker := range brokers {
		queues = append(queues, onBroker(broker, n)...)
	}
	slices.SortFunc(queues, txn.Queue.Compare)
	return queues
}

// jump is jump consistent hash over the sorted list, for comparison.
func jump(key string, queues []txn.Queue) txn.Queue {
	h, bucket := mix64(fnv1a64(key)), int64(-1)
	for next := int64(0); next < int64(len(queues)); {
		bucket = next
		h = h*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return queues[bucket]
}

// When queues are added, a key goes to one of them or stays. When queues are removed, only their own keys move. With
// equal shares, it follows that 1/n of the keys move.
func TestConsistentMovesKeysToNewQueuesOnly(t *testing.T) {
	s := mustNew(t, TypeConsistent)
	rapid.Check(t, func(t *rapid.T) {
		all, key := queueLists().Draw(t, "queues"), rapid.String().Draw(t, "key")
		fewer := slices.DeleteFunc(slices.Clone(all), func(txn.Queue) bool { return rapid.Bool().Draw(t, "gone") })
		if len(fewer) == 0 {
			return
		}
		before := choose(t, s, fewer, key)
		after := choose(t, s, all, key)
		if after != before && slices.Contains(fewer, after) {
			t.Fatalf("key %q moved from %v to %v, which was there before", key, before, after)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func choose(t fataler, s txn.Selector, queues []txn.Queue, key string) txn.Queue {
	t.Helper()
	route, err := s.Select(queues, txn.SelectorInput{ShardKey: key})
	if err != nil {
		t.Fatal(err)
	}
	return route.Queue
}

// Queues are sorted by broker, then id, so a change is rarely at the end of the list.
func TestShareOfMovedKeys(t *testing.T) {
	keys := sequentialKeys()
	pair := queuesOf(8, "broker-a", "broker-b")
	nine := append(queuesOf(9, "broker-a"), queuesOf(8, "broker-b")...)
	for _, tt := range []struct {
		name   string
		before []txn.Queue
		after  []txn.Queue
	}{
		{"8 queues: one more", queuesOf(8, "broker-a"), queuesOf(9, "broker-a")},
		{"8+8: one more on the first broker", pair, nine},
		{"8+8: one more on the last broker", pair, append(queuesOf(8, "broker-a"), queuesOf(9, "broker-b")...)},
		{"8+8: one less on the first broker", nine, pair},
		{"8+8: a broker behind them", pair, queuesOf(8, "broker-a", "broker-b", "broker-c")},
		{"8+8: a broker between them", pair, queuesOf(8, "broker-a", "broker-ab", "broker-b")},
		{"8+8: a broker before them", pair, queuesOf(8, "broker-0", "broker-a", "broker-b")},
		{"8+8+8: the first broker gone", queuesOf(8, "broker-a", "broker-b", "broker-c"), queuesOf(8, "broker-b", "broker-c")},
	} {
		least := math.Abs(float64(len(tt.after)-len(tt.before))) / float64(max(len(tt.after), len(tt.before)))
		consistent, hash := mustNew(t, TypeConsistent), mustNew(t, TypeHash)
		moved, plain, modulo := 0, 0, 0
		for i, key := range keys {
			before, after := choose(t, consistent, tt.before, key), choose(t, consistent, tt.after, key)
			if before != after {
				moved++
				if slices.Contains(tt.after, before) && slices.Contains(tt.before, after) {
					t.Fatalf("%s: %q moved from %v to %v, though both are in both lists", tt.name, key, before, after)
				}
			}
			if i >= manyKeys/10 {
				continue // enough to compare with
			}
			if jump(key, tt.before) != jump(key, tt.after) {
				plain++
			}
			if choose(t, hash, tt.before, key) != choose(t, hash, tt.after, key) {
				modulo++
			}
		}
		t.Logf("%-38s least possible %6.2f %%   consistent %6.2f %%   jump over the sorted list %6.2f %%   hash %6.2f %%",
			tt.name, 100*least, 100*float64(moved)/manyKeys, 1000*float64(plain)/manyKeys, 1000*float64(modulo)/manyKeys)
		wantShare(t, tt.name, moved, manyKeys, least)
	}
}

// The selector remembers lists, and must not take another list of the same length for one of them.
func TestConsistentSeesEveryChangeOfTheList(t *testing.T) {
	s, want := mustNew(t, TypeConsistent), make(map[txn.Queue]bool)
	for range 3 {
		for _, broker := range []string{"broker-a", "broker-b"} {
			queue := choose(t, s, onBroker(broker, 8), "key")
			want[queue] = true
			if queue.Broker != broker {
				t.Errorf("got %v, want a queue of %s", queue, broker)
			}
		}
	}
	if len(want) != 2 {
		t.Errorf("got %v, want one queue of each broker", want)
	}
}
