package selector

import (
	"slices"
	"sync/atomic"

	"github.com/txsvc/txsvc/internal/txn"
)

// consistent gives every queue a score for the shard key, and picks the highest: rendezvous hashing (Thaler and
// Ravishankar, "Using name-based mappings to increase hit rates", 1998).
//
// A queue's score depends on its broker and id alone. So a queue that comes takes its share of the keys and no other key
// moves, and one that goes gives up its own keys only, wherever it stands in the list. Jump consistent hash (Lamping and
// Veach, 2014) promises that for buckets that are added at the end and taken from there: it hashes to a number, and
// in a list sorted by broker, then id, a queue added to the first broker changes the numbers of all others'.
type consistent struct {
	scored  atomic.Pointer[scored]
	reasons reasons
}

// scored is a list of queues with what each adds to its scores.
type scored struct {
	queues []txn.Queue
	seeds  []uint64
}

func (c *consistent) Name() string { return TypeConsistent }

func (c *consistent) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	n := len(queues)
	if n == 0 {
		return txn.Route{}, noQueue()
	}
	i := highest(c.seeds(queues), fnv1a64(in.ShardKey))
	return txn.Route{Queue: queues[i], Selector: TypeConsistent, Reason: c.reasons.of(n, i)}, nil
}

// highest returns the index with the highest score for the key; the first one, should two be equal.
func highest(seeds []uint64, key uint64) int {
	best, most := 0, uint64(0)
	for i, seed := range seeds {
		if score := mix64(key ^ seed); score > most {
			best, most = i, score
		}
	}
	return best
}

// seeds returns the queues' seeds, from the last call if the list is the same.
func (c *consistent) seeds(queues []txn.Queue) []uint64 {
	last := c.scored.Load()
	if last != nil && same(last.queues, queues) {
		return last.seeds
	}
	next := &scored{queues: queues}
	if last != nil && slices.Equal(last.queues, queues) {
		next.seeds = last.seeds
	} else {
		for _, queue := range queues {
			next.seeds = append(next.seeds, mix64(fnv1a64(queue.String())))
		}
	}
	c.scored.Store(next)
	return next.seeds
}

// same tells whether two lists, neither of them empty, are one in memory.
func same(a, b []txn.Queue) bool { return len(a) == len(b) && &a[0] == &b[0] }

// mix64 is the output function of SplitMix64 (Steele, Lea and Flood, 2014): a permutation in which every bit of the
// input changes about half of the output's.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
