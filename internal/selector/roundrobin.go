package selector

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/txsvc/txsvc/internal/txn"
)

// roundRobin picks one queue after the other: no affinity.
type roundRobin struct {
	next    atomic.Uint64
	reasons reasons
}

// newRoundRobin begins at a random queue, so that replicas which start together do not all use the same one.
func newRoundRobin() txn.Selector {
	r := &roundRobin{reasons: reasons{format: "counter mod %d = %d"}}
	r.next.Store(rand.Uint64N(1 << 32))
	return r
}

func (r *roundRobin) Name() string { return TypeRoundRobin }

func (r *roundRobin) Select(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
	n := len(queues)
	if n == 0 {
		return txn.Route{}, noQueue()
	}
	i := int(r.next.Add(1) % uint64(n))
	return txn.Route{Queue: queues[i], Selector: TypeRoundRobin, Reason: r.reasons.of(n, i)}, nil
}
