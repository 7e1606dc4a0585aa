package selector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/txsvc/txsvc/internal/txn"
)

// randomKeys are UUIDs, the same in every run.
func randomKeys() []string {
	source := rand.NewChaCha8([32]byte{1})
	keys := make([]string, manyKeys)
	for i := range keys {
		keys[i] = uuid.Must(uuid.NewRandomFromReader(source)).String()
	}
	return keys
}

// chiSquare is Pearson's statistic of counts that should be equal.
func chiSquare(counts []int) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	mean, sum := float64(total)/float64(len(counts)), 0.0
	for _, n := range counts {
		sum += (float64(n) - mean) * (float64(n) - mean) / mean
	}
	return sum
}

// chiSquareLimit is a value that Pearson's statistic of a fair choice exceeds less than once in a million times (Wilson
// and Hilferty, 1931; a few per cent too high).
func chiSquareLimit(degrees int) float64 {
	const z = 4.753424 // the quantile 1 - 1e-6 of the normal distribution
	d := 2 / (9 * float64(degrees))
	return float64(degrees) * math.Pow(1-d+z*math.Sqrt(d), 3)
}

func TestChiSquareLimit(t *testing.T) {
	// The exact quantiles, from the incomplete gamma function.
	for degrees, want := range map[int]float64{3: 30.66, 7: 40.52, 15: 56.49, 63: 131.4} {
		if got := chiSquareLimit(degrees); got < want || got > 1.08*want {
			t.Errorf("%d degrees: got %.2f, want %.2f or a little more", degrees, got, want)
		}
	}
}

// counts returns how many of the keys each queue gets.
func counts(t *testing.T, s txn.Selector, queues []txn.Queue, keys []string) []int {
	t.Helper()
	index := make(map[txn.Queue]int, len(queues))
	for i, queue := range queues {
		index[queue] = i
	}
	n := make([]int, len(queues))
	for _, key := range keys {
		n[index[choose(t, s, queues, key)]]++
	}
	return n
}

// Random keys are spread like by dice. For numbered keys, no queue may get much more than its share; a hash may spread
// them more evenly than dice. Java's hash fails this, and cannot be changed.
func TestDistribution(t *testing.T) {
	random, numbered := randomKeys(), sequentialKeys()
	for _, name := range []string{TypeHash, TypeJavaHash, TypeConsistent, TypeRoundRobin} {
		for _, queues := range [][]txn.Queue{onBroker("broker-a", 8), queuesOf(8, "broker-a", "broker-b"), queuesOf(5, "broker-a", "broker-b", "rmq-10"), onBroker("broker-a", 64)} {
			n := len(queues)
			for _, keys := range []struct {
				name string
				keys []string
			}{{"random", random}, {"numbered", numbered}} {
				got := counts(t, mustNew(t, name), queues, keys.keys)
				skew := float64(slices.Max(got)) * float64(n) / manyKeys
				chi, limit := chiSquare(got), chiSquareLimit(n-1)
				t.Logf("%-12s %3d queues  %-8s keys  max/mean %.3f  min/mean %.3f  chi-square %8.1f  (limit %.1f)",
					name, n, keys.name, skew, float64(slices.Min(got))*float64(n)/manyKeys, chi, limit)
				if keys.name == "random" && chi > limit {
					t.Errorf("%s over %d queues, random keys: chi-square %.1f, want at most %.1f", name, n, chi, limit)
				}
				if most := 1 + max(0.1, 4/math.Sqrt(manyKeys/float64(n))); skew > most && name != TypeJavaHash { // four standard deviations
					t.Errorf("%s over %d queues, %s keys: max/mean %.3f, want at most %.3f", name, n, keys.name, skew, most)
				}
			}
		}
	}
}

// canaries makes lanes with one share.
func canaries(share float64, within string) Spec {
	return Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Within: Spec{Type: within}, Lanes: []Lane{
		{Name: "canary", Queues: ids(0, 1, 2, 3), Share: share}, {Name: "default", Queues: ids(4, 5, 6, 7)},
	}}}
}

// inCanary returns the keys that go to the canary, and how many go to each of its queues.
func inCanary(t *testing.T, spec Spec, keys []string) (map[string]bool, []int) {
	t.Helper()
	s, queues := mustMake(t, spec), onBroker("broker-a", 8)
	in, perQueue := make(map[string]bool), make([]int, 4)
	for _, key := range keys {
		route, err := s.Select(queues, txn.SelectorInput{ShardKey: key})
		if err != nil {
			t.Fatal(err)
		}
		if route.Lane == "canary" {
			in[key] = true
			perQueue[route.Queue.ID]++
		}
	}
	return in, perQueue
}

// The share is the one in the spec, and its keys are spread over the canary's queues, whichever hash picks these.
func TestCanaryShare(t *testing.T) {
	for _, keys := range [][]string{randomKeys(), sequentialKeys()} {
		for _, share := range []float64{0.1, 5, 12.5, 99.9} {
			for _, within := range []string{TypeHash, TypeJavaHash, TypeConsistent} {
				in, perQueue := inCanary(t, canaries(share, within), keys)
				chi, limit := chiSquare(perQueue), chiSquareLimit(3)
				t.Logf("keys like %s  share %5.1f %%  measured %7.3f %%  within %-10s  queues %v  chi-square %5.1f  (limit %.1f)",
					keys[0], share, 100*float64(len(in))/manyKeys, within, perQueue, chi, limit)
				wantShare(t, fmt.Sprintf("share of %v %%", share), len(in), manyKeys, share/100)
				if chi > limit {
					t.Errorf("share of %v %%, within %s: the queues of the canary get %v: chi-square %.1f, want at most %.1f", share, within, perQueue, chi, limit)
				}
			}
		}
	}
}

// A canary that grows keeps its keys. A share of 100 takes all keys, and a share of 0 none.
func TestCanaryGrows(t *testing.T) {
	keys := randomKeys()[:20_000]
	last := map[string]bool{}
	for _, share := range []float64{0, 0.5, 5, 20, 100} {
		in, _ := inCanary(t, canaries(share, TypeHash), keys)
		for key := range last {
			if !in[key] {
				t.Fatalf("%s left the canary when its share grew to %v %%", key, share)
			}
		}
		last = in
		if share == 0 && len(in) > 0 || share == 100 && len(in) != len(keys) {
			t.Errorf("a share of %v %%: got %d of %d keys", share, len(in), len(keys))
		}
	}
}

// Shares do not overlap: each lane gets its own, the default lane the rest. Within lanes, the same share takes other keys.
func TestSharesAreIndependent(t *testing.T) {
	three := Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Lanes: []Lane{
		{Name: "a", Queues: ids(0), Share: 10}, {Name: "b", Queues: ids(1), Share: 30}, {Name: "default", Queues: ids(2)},
	}}}
	nested := canaries(10, "")
	nested.Lanes.Lanes = []Lane{{Name: "canary", Queues: ids(0, 1), Share: 10}, {Name: "default", Queues: ids(0, 1)}}
	nested.Lanes.Within = Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Lanes: []Lane{
		{Name: "canary", Queues: ids(0), Share: 10}, {Name: "default", Queues: ids(1)},
	}}}
	for _, tt := range []struct {
		spec Spec
		want map[string]float64
	}{
		{three, map[string]float64{"a": 0.1, "b": 0.3, "default": 0.6}},
		{nested, map[string]float64{"canary/canary": 0.01, "canary/default": 0.09, "default/canary": 0.09, "default/default": 0.81}},
	} {
		s, got := mustMake(t, tt.spec), make(map[string]int)
		for _, key := range randomKeys() {
			route, err := s.Select(onBroker("broker-a", 3), txn.SelectorInput{ShardKey: key})
			if err != nil {
				t.Fatal(err)
			}
			got[route.Lane]++
		}
		for lane, want := range tt.want {
			wantShare(t, lane, got[lane], manyKeys, want)
		}
	}
}
