package routing

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// view has what the router knows about one topic.
type view struct {
	topic           string
	remaps, refuses bool // whether some destination has OnChangeRemap, or OnChangeRefuse
	java            bool // or one that chooses as producers in Java do
	live            atomic.Pointer[sighting]
	last            atomic.Pointer[[]txn.Queue] // live queues, when there were any
	accepted        atomic.Pointer[acceptance]
}

// sighting is a list of live queues, and the time since when it is that list.
type sighting struct {
	queues    []txn.Queue
	changedAt time.Time // zero for the first one
	before    int       // how many there were
}

// notice stores the list. It returns the one before if that differs, and to one caller only when several see the change
// at once.
func (v *view) notice(queues []txn.Queue, now time.Time) (before []txn.Queue, changed bool) {
	for {
		known := v.live.Load()
		if known != nil && same(known.queues, queues) {
			return nil, false
		}
		next := &sighting{queues: queues}
		if known != nil {
			next.changedAt, next.before = now, len(known.queues)
		}
		if v.live.CompareAndSwap(known, next) {
			if known == nil {
				return nil, false
			}
			return known.queues, true
		}
	}
}

// same is quick for a list that is the same slice.
func same(a, b []txn.Queue) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// acceptance is the accepted list of a topic as this process has read it.
type acceptance struct {
	txn.AcceptedQueues
	from time.Time // when its pause is over, on this process's clock
}

// now returns the list in use.
func (a *acceptance) now(now time.Time) []txn.Queue {
	if a.pausing(now) {
		return a.Previous
	}
	return a.Queues
}

func (a *acceptance) pausing(now time.Time) bool { return now.Before(a.from) && len(a.Previous) > 0 }

// guard refuses all ordered messages of a topic while their selector is not the accepted one, and until the pause after
// an acceptance is over. So no two replicas send one key to different queues at the same time.
func (a *acceptance) guard(topic, selector string, now time.Time) error {
	switch {
	case a.Selector != selector:
		return txn.BrokerUnavailable(nil, "the selector of ordered messages of topic %s is another one than the accepted one, and would move keys: "+
			"txsvc route accept %s accepts it", topic, topic)
	case a.pausing(now) && a.PreviousSelector != "" && a.PreviousSelector != a.Selector:
		left := (a.from.Sub(now) + time.Second - 1).Truncate(time.Second) // rounded up
		e := txn.BrokerUnavailable(nil, "another selector of ordered messages of topic %s takes effect in %s; they are refused until then", topic, left)
		e.RetryAfter = left
		return e
	}
	return nil
}

// choose lets the selector choose from the accepted list. While a new list waits for the end of its pause, choose
// refuses the keys that would move.
func (a *acceptance) choose(s txn.Selector, in txn.SelectorInput, now time.Time) (txn.Route, int, error) {
	if !a.pausing(now) {
		route, err := s.Select(a.Queues, in)
		return route, len(a.Queues), err
	}
	route, err := s.Select(a.Previous, in)
	if err != nil {
		return txn.Route{}, 0, err
	}
	next, err := s.Select(a.Queues, in)
	if err != nil {
		return txn.Route{}, 0, err
	}
	if next.Queue != route.Queue {
		left := (a.from.Sub(now) + time.Second - 1).Truncate(time.Second) // rounded up
		e := txn.BrokerUnavailable(nil, "the key moves from queue %s to %s in %s, when a newly accepted list of queues takes effect; it is refused until then",
			route.Queue, next.Queue, left)
		e.RetryAfter = left
		return txn.Route{}, 0, e
	}
	return route, len(a.Previous), nil
}

// Describe names a list for people, one part per broker: "broker-a:0-3, broker-b:0-1,3".
func Describe(queues []txn.Queue) string {
	if len(queues) == 0 {
		return "none"
	}
	var parts []string
	for rest := queues; len(rest) > 0; {
		broker := rest[0].Broker
		n := slices.IndexFunc(rest, func(q txn.Queue) bool { return q.Broker != broker })
		if n < 0 {
			n = len(rest)
		}
		parts = append(parts, broker+":"+ranges(rest[:n]))
		rest = rest[n:]
	}
	return strings.Join(parts, ", ")
}

// ranges writes the ids of a broker's sorted queues.
func ranges(queues []txn.Queue) string {
	var parts []string
	for first := 0; first < len(queues); {
		last := first
		for last+1 < len(queues) && queues[last+1].ID == queues[last].ID+1 {
			last++
		}
		part := fmt.Sprint(queues[first].ID)
		if last > first {
			part = fmt.Sprintf("%d-%d", queues[first].ID, queues[last].ID)
		}
		parts = append(parts, part)
		first = last + 1
	}
	return strings.Join(parts, ",")
}
