package selector

import "github.com/txsvc/txsvc/internal/txn"

// consistent gives every queue a score for the shard key, and picks the highest: rendezvous hashing (Thaler and
// Ravishankar, "Using name-based mappings to increase hit rates", 1998).
//
// A queue's score depends on its broker and id alone. So a new queue takes its share of the keys and no other key
// moves, and a queue that goes gives up only its own keys, wherever it is in the list. Jump consistent hash (Lamping
// and Veach, 2014) promises that only for buckets at the end, because it hashes to a number. In a list sorted by
// broker, then id, a queue that is added to the first broker changes the numbers of all others.
type consistent struct {
	seeds   recent[[]uint64]
	reasons reasons
}

func (c *consistent) Name() string { return TypeConsistent }

func (c *consistent) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	n := len(queues)
	if n == 0 {
		return txn.Route{}, noQueue()
	}
	i := highest(c.seeds.of(queues, seedsOf), fnv1a64(in.ShardKey))
	return txn.Route{Queue: queues[i], Selector: TypeConsistent, Reason: c.reasons.of(n, i)}, nil
}

// highest returns the index with the highest score for the key, and the first one of equal scores.
func highest(seeds []uint64, key uint64) int {
	best, most := 0, uint64(0)
	for i, seed := range seeds {
		if score := mix64(key ^ seed); score > most {
			best, most = i, score
		}
	}
	return best
}

// seedsOf returns, for each queue, the seed of its scores.
func seedsOf(queues []txn.Queue) []uint64 {
	seeds := make([]uint64, len(queues))
	for i, queue := range queues {
		seeds[i] = mix64(fnv1a64(queue.String()))
	}
	return seeds
}

// mix64 is the output function of SplitMix64 (Steele, Lea and Flood, 2014): a permutation in which every bit of the
// input changes about half of the output's.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
