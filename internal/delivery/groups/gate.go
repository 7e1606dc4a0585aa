package groups

import (
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// busyPause is as long as a broker lets a message wait before it says that it is busy.
const busyPause = 200 * time.Millisecond

// Evidence knows which brokers answer.
type Evidence interface {
	// Answering is false for a broker that is known not to answer.
	Answering(broker string) bool
}

// Brokers are the masters that are known.
type Brokers interface {
	// Brokers returns their names.
	Brokers() []string
	// Stores is false while a broker is known not to store messages, or to store them less safely than configured.
	Stores(broker string) bool
}

// Gate says which topics on which brokers can be sent to now. It is safe for concurrent use.
type Gate struct {
	evidence Evidence
	brokers  Brokers
	timing   txn.Timing
	mu       sync.Mutex
	paused   map[txn.Group]*pause
}

// pause is how long a topic on a broker is left alone.
type pause struct {
	failures int
	until    time.Time
}

// NewGate returns a Gate without pauses.
func NewGate(evidence Evidence, brokers Brokers, timing txn.Timing) *Gate {
	return &Gate{evidence: evidence, brokers: brokers, timing: timing, paused: make(map[txn.Group]*pause)}
}

// IsOpen reports whether the broker answers and stores messages, and the topic on it is not paused.
func (g *Gate) IsOpen(name txn.Group) bool {
	if !g.evidence.Answering(name.Broker) || !g.brokers.Stores(name.Broker) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.paused[name]
	return p == nil || time.Now().After(p.until)
}

// Brokers returns the brokers that are open for the topic.
func (g *Gate) Brokers(topic string) []string {
	return slices.DeleteFunc(slices.Clone(g.brokers.Brokers()), func(broker string) bool {
		return !g.IsOpen(txn.Group{Broker: broker, Topic: topic})
	})
}

// BackOff pauses the topic on the broker, and returns how long. The pause grows with each failure, except after "busy".
func (g *Gate) BackOff(name txn.Group, busy bool) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.paused[name]
	if p == nil {
		p = &pause{}
		g.paused[name] = p
	}
	switch now := time.Now(); {
	case !now.After(p.until): // another queue of the topic has failed already
	case busy:
		p.until = now.Add(busyPause)
	default:
		p.failures++
		p.until = now.Add(min(g.timing.FirstBackoff<<min(p.failures-1, 10), g.timing.TopicBackoff))
	}
	return time.Until(p.until).Round(time.Millisecond)
}

// Reopen ends the pause of the topic on the broker, and forgets its failures.
func (g *Gate) Reopen(name txn.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.paused, name)
}
