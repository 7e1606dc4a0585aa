// Package evidence knows a time for each broker: each request that reached the broker's host before this time is executed, and
// its message can be found, or is dropped for good. A row whose earlier holders may have sent something is delivered only after that.
//
// A stopped broker leaves requests unread in its sockets, and executes them when it wakes. When it has answered a probe, it
// is awake and reads its sockets. What it has read waits at most BrokerQueue, because BrokerFastFailure drops what waits
// longer. So a probe that was sent at s and answered at a settles, from a + BrokerQueue on, all that had arrived before s.
//
// What is executed is in the broker's log. The broker's index follows the log on a thread of its own: usually within
// milliseconds, and seconds later after a start or on a busy host. So an index probe is put into the log after that time:
// what is before the probe in the log is in the index when the probe is.
package evidence

import (
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// answeringFor is how many probes a broker may leave unanswered and count as answering.
	answeringFor = 4
	// probesKept bounds the answered probes that are kept of a broker.
	probesKept = 128
)

// Evidence has the evidence of all brokers. A Prober fills it. It is safe for concurrent use.
type Evidence struct {
	timing  *txn.Timing
	mu      sync.Mutex
	brokers map[string]*broker
}

// broker has the evidence of one broker; the mutex of Evidence guards it.
type broker struct {
	timing *txn.Timing
	asked  time.Time // when the broker was probed for the first time
	probes []probe   // answered ones, oldest first
	index  index
}

type probe struct{ sent, answered time.Time }

// New returns Evidence of no broker yet.
func New(timing txn.Timing) *Evidence {
	return &Evidence{timing: &timing, brokers: make(map[string]*broker)}
}

// of returns the broker's state; the caller holds the mutex.
func (e *Evidence) of(name string) *broker {
	b := e.brokers[name]
	if b == nil {
		b = &broker{timing: e.timing, index: index{timing: e.timing}}
		e.brokers[name] = b
	}
	return b
}

// asking notes that the broker is probed from now on.
func (e *Evidence) asking(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.of(name); b.asked.IsZero() {
		b.asked = time.Now()
	}
}

// add notes a probe that was answered.
func (e *Evidence) add(name string, sent, answered time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.of(name)
	if len(b.probes) == probesKept {
		b.probes = slices.Delete(b.probes, 0, 1)
	}
	b.probes = append(b.probes, probe{sent, answered})
}

// Answering says whether the broker answered one of its last probes. A broker that was not probed for as long counts as
// answering.
func (e *Evidence) Answering(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, now := e.of(name), time.Now()
	if len(b.probes) > 0 {
		return b.answeredLately(now)
	}
	return b.asked.IsZero() || now.Sub(b.asked) < answeringFor*e.timing.ProbeEvery
}

func (b *broker) answeredLately(now time.Time) bool {
	return len(b.probes) > 0 && now.Sub(b.probes[len(b.probes)-1].answered) < answeringFor*b.timing.ProbeEvery
}

// Settled says whether all that reached the broker before the given time is executed and can be found, or is dropped: then
// wait is 0. Otherwise wait is how long that takes if evidence goes on coming. The topic is one that the broker has; index
// probes are put there. indexed says that the broker's index tells what is visible; otherwise queues have to be read.
func (e *Evidence) Settled(name, topic string, before time.Time) (wait time.Duration, indexed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, now := e.of(name), time.Now()
	followed := b.index.isWanted(now)
	b.index.want(now)
	b.index.topic = topic
	upTo := b.upTo(now)
	switch {
	case upTo.After(before):
		b.index.waiting = time.Time{}
		return 0, b.index.source == byIndex
	case b.index.waiting.IsZero():
		b.index.waiting = now
	}
	if upTo.IsZero() || !followed {
		return 2 * e.timing.ProbeEvery, false // the first index probe is found by then
	}
	return min(before.Sub(upTo)+e.timing.ProbeEvery, e.timing.EvidenceWait), false
}

// Indexed says whether the broker's index tells what is visible, as far as is known.
func (e *Evidence) Indexed(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of(name).index.source == byIndex
}

// upTo returns the time up to which all that reached the broker is settled; zero: nothing is.
func (b *broker) upTo(now time.Time) (upTo time.Time) {
	for _, p := range b.probes {
		if at := p.answered.Add(b.timing.Settled()); !at.After(now) && b.index.passed(at, now) && p.sent.After(upTo) {
			upTo = p.sent
		}
	}
	return upTo
}

// KeepsUp says whether the broker's evidence is new enough to claim its rows: otherwise a row whose earlier holders may have
// sent something would only be given back. A broker about which nobody has asked keeps up, because a first claim has to ask.
func (e *Evidence) KeepsUp(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of(name).keepsUp(time.Now())
}

func (b *broker) keepsUp(now time.Time) bool {
	return !b.index.isWanted(now) || now.Sub(b.upTo(now)) <= b.index.lag()
}

// Claimable returns those of the brokers that keep up, have answered lately, and have answered a probe long enough ago to
// settle anything at all.
func (e *Evidence) Claimable(names []string) (claimable []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		b := e.of(name)
		if b.answeredLately(now) && !b.probes[0].answered.Add(e.timing.Settled()).After(now) && b.keepsUp(now) {
			claimable = append(claimable, name)
		}
	}
	return claimable
}

// Degraded says, for people and by broker, why evidence does not come, or comes by a longer way.
func (e *Evidence) Degraded() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	reasons := make(map[string]string)
	for name, b := range e.brokers {
		switch {
		case b.index.isStuck(now):
			reasons[name] = "messages that may have been sent wait: it cannot be found out which of them the broker has made visible"
		case b.index.source == byQueue:
			reasons[name] = "the broker's message index does not know what is in its queues (is messageIndexEnable off?): queues are read instead, which takes longer"
		case b.index.source == byTime:
			reasons[name] = "it cannot be found out how far the broker's message index is, for want of a permission or a topic: what may have been sent waits " +
				e.timing.IndexBlind.String() + " longer, and its queues are read"
		}
	}
	return reasons
}
