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
	probesKept  = 128
	// longestWait is how long a row waits at most until what is known of its broker is looked at again.
	longestWait = 5 * time.Second
	// readyLag is how far what is known of a broker may lag behind while its rows are claimed.
	readyLag = 15 * time.Second
	// wantedFor is how long a broker's index is followed after somebody asked.
	wantedFor = 10 * time.Second
	// blindLag is how far a broker's queues are taken to be behind its log at most, where it cannot be found out.
	blindLag = 30 * time.Second
)

// evidence knows, for each broker, up to when everything that had reached its host is executed and in its index, or dropped.
//
// A stopped broker leaves requests unread in its sockets and executes them when it wakes. Once it has answered a probe,
// it has woken and reads its sockets; what it read waits at most BrokerQueue, after which BrokerFastFailure drops it. So
// a probe sent at s and answered at a settles, from a + BrokerQueue on, all that had arrived before s.
//
// What is executed is in the broker's log. Its index follows on a thread of its own, usually within milliseconds, and after
// a start, or on a busy host, seconds later. So a mark is put into the log after that time, and what is before it in the log
// is in the index when the mark is (see marks.go).
type evidence struct {
	queue  time.Duration
	mu     sync.Mutex
	probes map[string][]probe
	asked  map[string]time.Time // when each broker was asked for the first time
	marks  map[string]*marks
}

type probe struct{ sent, answered time.Time }

func newEvidence(timing txn.Timing) *evidence {
	return &evidence{
		queue: timing.BrokerQueue + probeMargin, probes: make(map[string][]probe), asked: make(map[string]time.Time),
		marks: make(map[string]*marks),
	}
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

// settled says whether all that reached the broker before the given time is executed and can be found, or is dropped, by now:
// the time to wait is 0 then. If not, it is how long that takes when what is known goes on as it does. The topic is one that
// the broker has. indexed says that the index tells; otherwise queues have to be read.
func (e *evidence) settled(broker, topic string, before, now time.Time) (wait time.Duration, indexed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.marksOf(broker)
	followed := m.isWanted(now)
	m.want(now)
	m.topic = topic
	upTo := e.upTo(broker, m, now)
	switch {
	case upTo.After(before):
		m.waiting = time.Time{}
		return 0, m.source == byIndex
	case m.waiting.IsZero():
		m.waiting = now
	}
	if upTo.IsZero() || !followed {
		return 2 * probeEvery, false // the first mark is found by then
	}
	return min(before.Sub(upTo)+probeEvery, longestWait), false
}

// indexed says whether the broker's index tells what is visible, as far as is known.
func (e *evidence) indexed(broker string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.marksOf(broker).source == byIndex
}

// troubles says, for people, what keeps evidence of the brokers from coming, or makes it come by a longer way.
func (e *evidence) troubles(now time.Time) map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := make(map[string]string)
	for broker, m := range e.marks {
		switch {
		case m.isStuck(now):
			found[broker] = "messages that may have been sent wait: it cannot be found out which of them the broker has made visible"
		case m.source == byQueue:
			found[broker] = "the broker's message index does not know what is in its queues (is messageIndexEnable off?): queues are read instead, which takes longer"
		case m.source == byTime:
			found[broker] = "it cannot be found out how far the broker's message index is, for want of a permission or a topic: what may have been sent waits " +
				blindLag.String() + " longer, and its queues are read"
		}
	}
	return found
}

// upTo returns the time up to which all that reached the broker is settled.
func (e *evidence) upTo(broker string, m *marks, now time.Time) (upTo time.Time) {
	for _, p := range e.probes[broker] {
		if at := p.answered.Add(e.queue); !at.After(now) && m.passed(at, now) && p.sent.After(upTo) {
			upTo = p.sent
		}
	}
	return upTo
}

// ready returns those of the brokers about which enough is known to claim what is due: a row whose earlier holders may have
// sent something would only be given back. About a broker of which nobody has asked, a first claim does.
func (e *evidence) ready(brokers []string, now time.Time) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(brokers), func(broker string) bool {
		m := e.marksOf(broker)
		return m.isWanted(now) && now.Sub(e.upTo(broker, m, now)) > m.lag()
	})
}

func (e *evidence) marksOf(broker string) *marks {
	m := e.marks[broker]
	if m == nil {
		m = &marks{}
		e.marks[broker] = m
	}
	return m
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
