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
	// wantedFor is how long a broker's index is followed after somebody asked.
	wantedFor = 10 * time.Second
	// blindLag is how far the index is taken to be behind at most, where the broker does not tell.
	blindLag = 30 * time.Second
)

// evidence knows, for each broker, up to when everything that had reached its host is executed and in its index, or dropped.
//
// A stopped broker leaves requests unread in its sockets and executes them when it wakes. Once it has answered a probe,
// it has woken and reads its sockets; what it read waits at most BrokerQueue, after which BrokerFastFailure drops it. So
// a probe sent at s and answered at a settles, from a + BrokerQueue on, all that had arrived before s.
//
// What is executed is in the broker's log. Its index follows on a thread of its own, usually within milliseconds, and after
// a start, or on a busy host, seconds later. So the broker is asked how far its log goes, after that time, and then how far
// the index has come, until it is past that.
type evidence struct {
	queue     time.Duration
	mu        sync.Mutex
	probes    map[string][]probe
	positions map[string][]position
	asked     map[string]time.Time // when each broker was asked for the first time
	wanted    map[string]time.Time // when somebody asked last how far its index is
	blind     map[string]bool      // brokers that do not tell how far their indexes are
}

type probe struct{ sent, answered time.Time }

// position is where a broker's log ended at some moment after it was asked, in bytes, and up to where it was in the index.
type position struct {
	asked        time.Time
	end, indexed int64
}

func newEvidence(timing txn.Timing) *evidence {
	return &evidence{
		queue: timing.BrokerQueue + probeMargin, probes: make(map[string][]probe), positions: make(map[string][]position),
		asked: make(map[string]time.Time), wanted: make(map[string]time.Time), blind: make(map[string]bool),
	}
}

func (e *evidence) add(broker string, sent, answered time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probes[broker] = keep(e.probes[broker], probe{sent, answered})
}

// keep appends, and forgets the oldest when there are many.
func keep[T any](list []T, another T) []T {
	if len(list) == probesKept {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, another)
}

func (e *evidence) addPosition(broker string, p position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.positions[broker] = keep(e.positions[broker], p)
	e.blind[broker] = false
}

// doesNotTell notes that the broker answers, and not how far its index is. It is true the first time.
func (e *evidence) doesNotTell(broker string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.blind[broker]
	e.blind[broker] = true
	return first
}

// wants says whether somebody needs to know how far the broker's index is.
func (e *evidence) wants(broker string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.wanted[broker]
	return ok && now.Sub(at) < wantedFor
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

// settled says whether all that reached the broker before the given time is executed and in the index, or dropped, by now.
func (e *evidence) settled(broker string, before, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.executed(broker, before)
	if !ok || at.After(now) {
		return false
	}
	e.wanted[broker] = now
	return e.known(broker, at, now)
}

// ready returns those of the brokers about which enough is known for what has just become due: a row whose earlier holders
// may have sent something would only be given back. Nobody has asked about the others yet, which is what begins it.
func (e *evidence) ready(brokers []string, now time.Time) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(brokers), func(broker string) bool {
		return now.Sub(e.wanted[broker]) < wantedFor && !e.fresh(broker, now)
	})
}

// fresh says whether all that reached the broker up to a moment ago is settled.
func (e *evidence) fresh(broker string, now time.Time) bool {
	lag := e.queue + 4*probeEvery
	if e.blind[broker] {
		lag += blindLag
	}
	for _, p := range e.probes[broker] {
		at := p.answered.Add(e.queue)
		if now.Sub(p.sent) <= lag && !at.After(now) && e.known(broker, at, now) {
			return true
		}
	}
	return false
}

// known says whether all that was in the broker's log at the moment is in its index.
func (e *evidence) known(broker string, at, now time.Time) bool {
	return e.indexed(broker, at) || e.blind[broker] && !at.Add(blindLag).After(now)
}

// executed returns from when on all that reached the broker before the given time is executed or dropped.
func (e *evidence) executed(broker string, before time.Time) (at time.Time, ok bool) {
	for _, p := range e.probes[broker] {
		if settles := p.answered.Add(e.queue); p.sent.After(before) && (!ok || settles.Before(at)) {
			at, ok = settles, true
		}
	}
	return at, ok
}

func (e *evidence) indexed(broker string, at time.Time) bool {
	list := e.positions[broker]
	for i, p := range list {
		// A broker that has lost the end of its log begins anew with a lower one.
		if !p.asked.Before(at) && slices.ContainsFunc(list[i:], func(later position) bool { return later.indexed >= p.end }) {
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
