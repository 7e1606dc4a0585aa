package routing

import (
	"cmp"
	"math"
	"slices"

	"github.com/txsvc/txsvc/internal/txn"
)

// Spread counts where messages would go. It is not safe for concurrent use.
type Spread struct {
	queues   []txn.Queue
	selector txn.Selector
	keys     int
	groups   map[string]map[txn.Queue]int // by lane
	refused  map[string]int               // by why
}

// NewSpread returns an empty count for the selector over the sorted queues.
func NewSpread(queues []txn.Queue, s txn.Selector) *Spread {
	return &Spread{queues: queues, selector: s, groups: make(map[string]map[txn.Queue]int), refused: make(map[string]int)}
}

// Add asks the selector about one message, and counts the answer.
func (s *Spread) Add(in txn.SelectorInput) {
	s.keys++
	route, err := s.selector.Select(s.queues, in)
	if err != nil {
		why := err.Error()
		if words := txn.WordsOf(err); words != "" {
			why = words
		}
		s.refused[why]++
		return
	}
	if s.groups[route.Lane] == nil {
		s.groups[route.Lane] = make(map[txn.Queue]int)
	}
	s.groups[route.Lane][route.Queue]++
}

// Distribution is what a Spread has counted.
type Distribution struct {
	Keys    int            // that were asked about, refused ones too
	Lanes   []LaneShare    // by name; one without a name when there are no lanes
	Refused map[string]int // how many, by why
}

// LaneShare counts the messages of one lane.
type LaneShare struct {
	Lane   string
	Keys   int
	Queues []QueueShare // sorted; without lanes all queues, else those that got something
	// Skew is the fullest queue's count over the mean. Chi2 is Pearson's statistic against an even spread, P the probability
	// that chance alone makes an even spread look as uneven or more.
	Skew, Chi2, P float64
}

// QueueShare counts the messages of one queue.
type QueueShare struct {
	Queue txn.Queue
	Keys  int
}

// Distribution returns the counts.
func (s *Spread) Distribution() Distribution {
	d := Distribution{Keys: s.keys, Refused: s.refused}
	for lane, counts := range s.groups {
		share := LaneShare{Lane: lane}
		for _, q := range s.queues {
			if n, ok := counts[q]; ok || lane == "" {
				share.Queues = append(share.Queues, QueueShare{q, n})
				share.Keys += n
			}
		}
		share.measure()
		d.Lanes = append(d.Lanes, share)
	}
	slices.SortFunc(d.Lanes, func(a, b LaneShare) int { return cmp.Compare(a.Lane, b.Lane) })
	return d
}

func (l *LaneShare) measure() {
	mean := float64(l.Keys) / float64(len(l.Queues))
	fullest := 0
	for _, q := range l.Queues {
		fullest = max(fullest, q.Keys)
		l.Chi2 += (float64(q.Keys) - mean) * (float64(q.Keys) - mean) / mean
	}
	l.Skew = float64(fullest) / mean
	l.P = chiSquareTail(l.Chi2, len(l.Queues)-1)
}

// chiSquareTail is the probability that a chi-square variable of so many degrees of freedom exceeds x, by the
// approximation of Wilson and Hilferty (1931): good to a few thousandths.
func chiSquareTail(x float64, degrees int) float64 {
	if degrees < 1 {
		return 1
	}
	k := float64(degrees)
	z := (math.Cbrt(x/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
	return math.Erfc(z/math.Sqrt2) / 2
}

// Moved returns the share of n made-up shard keys that the selector sends to another queue when the list changes, and
// false when the selector does not choose by the shard key alone.
func Moved(s txn.Selector, before, after []txn.Queue, keys []string) (share float64, ok bool) {
	moved := 0
	for _, key := range keys {
		in := txn.SelectorInput{ShardKey: key}
		from, err := s.Select(before, in)
		if err != nil {
			return 0, false
		}
		if to, err := s.Select(after, in); err != nil || to.Queue != from.Queue {
			moved++
		}
	}
	return float64(moved) / float64(len(keys)), len(keys) > 0
}
