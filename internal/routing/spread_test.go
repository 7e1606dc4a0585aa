package routing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// The values are of the usual tables of the chi-square distribution.
func TestChiSquareTail(t *testing.T) {
	for _, tc := range []struct {
		x       float64
		degrees int
		want    float64
	}{
		{3.841, 1, 0.05}, {6.635, 1, 0.01}, {14.067, 7, 0.05}, {18.475, 7, 0.01}, {6.346, 7, 0.5}, {24.322, 7, 0.001},
		{82.529, 63, 0.05}, {92.010, 63, 0.01}, {0, 7, 1}, {5, 0, 1},
	} {
		if got := chiSquareTail(tc.x, tc.degrees); math.Abs(got-tc.want) > 0.004 {
			t.Errorf("%v with %d degrees of freedom: got %.4f, want %.4f", tc.x, tc.degrees, got, tc.want)
		}
	}
}

// byChance sends each message to a random queue, so its spread is the one that the statistic assumes.
type byChance struct{ random *rand.Rand }

func (byChance) Name() string { return "by_chance" }

func (s byChance) Select(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
	return txn.Route{Queue: queues[s.random.IntN(len(queues))]}, nil
}

// TestEvenSpreadIsToldFromAnUnevenOne: of even spreads, the share that looks uneven is p; a hot key shows.
func TestEvenSpreadIsToldFromAnUnevenOne(t *testing.T) {
	s := byChance{rand.New(rand.NewPCG(1, 2))}
	uneven := 0
	const trials = 1000
	for range trials {
		spread := NewSpread(list("a", 0, 1, 2, 3, 4, 5, 6, 7), s)
		for range 1000 {
			spread.Add(txn.SelectorInput{})
		}
		if spread.Distribution().Lanes[0].P < 0.05 {
			uneven++
		}
	}
	if uneven < trials*3/100 || uneven > trials*7/100 {
		t.Errorf("%d of %d even spreads have p < 0.05, want about 50", uneven, trials)
	}
	spread := NewSpread(list("a", 0, 1, 2, 3, 4, 5, 6, 7), s)
	hash, _ := selector.New(selector.Spec{Type: selector.TypeHash})
	spread.selector = hash
	for i := range 1000 {
		spread.Add(txn.SelectorInput{ShardKey: fmt.Sprint("key-", i)})
		if i%4 == 0 {
			spread.Add(txn.SelectorInput{ShardKey: "hot"})
		}
	}
	if l := spread.Distribution().Lanes[0]; l.P > 0.001 || l.Skew < 2 || l.Skew > 3.5 || l.Keys != 1250 || len(l.Queues) != 8 {
		t.Errorf("got %+v, want the hot key seen", l)
	}
}

// TestSpreadOverLanes: lanes are counted apart, and refusals by their reason.
func TestSpreadOverLanes(t *testing.T) {
	s, err := selector.New(selector.Spec{Type: selector.TypeQueue})
	if err != nil {
		t.Fatal(err)
	}
	spread := NewSpread(list("a", 0, 1), laned{s})
	for i := range 10 {
		spread.Add(txn.SelectorInput{Arg: fmt.Append(nil, i%5)})
	}
	d := spread.Distribution()
	want := Distribution{Keys: 10, Refused: map[string]int{}, Lanes: []LaneShare{
		{Lane: "lane-0", Keys: 2, Queues: []QueueShare{{txn.Queue{Broker: "a", ID: 0}, 2}}, Skew: 1, P: 1},
		{Lane: "lane-1", Keys: 2, Queues: []QueueShare{{txn.Queue{Broker: "a", ID: 1}, 2}}, Skew: 1, P: 1},
	}}
	for id := 2; id < 5; id++ {
		want.Refused[fmt.Sprintf("/selector_arg: there is no usable queue with the id %d", id)] = 2
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// laned gives each queue a lane of its own.
type laned struct{ txn.Selector }

func (l laned) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	route, err := l.Selector.Select(queues, in)
	route.Lane = fmt.Sprint("lane-", route.Queue.ID)
	return route, err
}

func TestMoved(t *testing.T) {
	hash, _ := selector.New(selector.Spec{Type: selector.TypeHash})
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	if share, ok := Moved(hash, list("a", 0, 1, 2, 3), list("a", 0, 1, 2, 3, 4, 5, 6, 7), keys); !ok || share < 0.48 || share > 0.52 {
		t.Errorf("twice the queues: got %.3f, %t, want about half", share, ok)
	}
	if share, ok := Moved(hash, list("a", 0, 1), list("a", 0, 1), keys); !ok || share != 0 {
		t.Errorf("the same queues: got %.3f, %t", share, ok)
	}
	named, _ := selector.New(selector.Spec{Type: selector.TypeQueue})
	if _, ok := Moved(named, list("a", 0, 1), list("a", 0), keys); ok {
		t.Error("a selector that needs selector_arg: its moves are told")
	}
}
