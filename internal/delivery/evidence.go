package delivery

import (
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// probeEvery is how often each broker is asked for a sign of life.
	probeEvery = 500 * time.Millisecond
	// probeMargin is added to the broker's queue limit, for the time its threads need to come to what they read.
	probeMargin = 200 * time.Millisecond
	probesKept  = 64
)

// evidence knows, for each broker, up to when everything that had reached its host is executed or dropped.
//
// A stopped broker leaves requests unread in its sockets and executes them when it wakes. Once it has answered a probe,
// it has woken and reads its sockets; what it read waits at most BrokerQueue, after which BrokerFastFailure drops it. So
// a probe sent at s and answered at a settles, from a + BrokerQueue on, all that had arrived before s.
type evidence struct {
	queue  time.Duration
	mu     sync.Mutex
	probes map[string][]probe
	asked  map[string]time.Time // when each broker was asked for the first time
}

type probe struct{ sent, answered time.Time }

func newEvidence(timing txn.Timing) *evidence {
	return &evidence{queue: timing.BrokerQueue + probeMargin, probes: make(map[string][]probe), asked: make(map[string]time.Time)}
}

func (e *evidence) add(broker string, sent, answered time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.probes[broker]
	if len(list) == probesKept {
		list = slices.Delete(list, 0, 1)
	}
	e.probes[broker] = append(list, probe{sent, answered})
}

// ask notes that the broker is asked from now on.
func (e *evidence) ask(broker string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.asked[broker]; !ok {
		e.asked[broker] = now
	}
}

// answering says whether the broker answered one of the last probes. One that was not asked for as long is given the
// benefit of the doubt.
func (e *evidence) answering(broker string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if list := e.probes[broker]; len(list) > 0 {
		return now.Sub(list[len(list)-1].answered) < 4*probeEvery
	}
	since, ok := e.asked[broker]
	return !ok || now.Sub(since) < 4*probeEvery
}

// settled says whether all that reached the broker before the given time is executed or dropped by now.
func (e *evidence) settled(broker string, before, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.probes[broker] {
		if p.sent.After(before) && !p.answered.Add(e.queue).After(now) {
			return true
		}
	}
	return false
}

// alive returns those of the brokers that answered a probe within the last few, and answered one long enough ago to
// settle anything at all.
func (e *evidence) alive(brokers []string, now time.Time) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var alive []string
	for _, broker := range brokers {
		list := e.probes[broker]
		if len(list) == 0 {
			continue
		}
		last := list[len(list)-1]
		if now.Sub(last.answered) < 4*probeEvery && !list[0].answered.Add(e.queue).After(now) {
			alive = append(alive, broker)
		}
	}
	return alive
}
