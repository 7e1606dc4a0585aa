package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Trouble is something that makes deliveries slower or less certain, while requests can be served.
type Trouble struct {
	Name   string // of what has it, e.g. "delivery:broker-a"
	Detail string // for anybody: no secret, no payload
}

// Troubles returns what there is now, sorted by name.
func (r *Resolver) Troubles() []Trouble {
	var list []Trouble
	now := time.Now()
	brokers := r.evidence.troubles(now)
	for _, broker := range slices.Sorted(maps.Keys(brokers)) {
		list = append(list, Trouble{Name: "delivery:" + broker, Detail: brokers[broker]})
	}
	if r.foreign.isRecent(now) {
		list = append(list, Trouble{Name: "producer_group", Detail: "brokers ask about half messages of another service or database, which uses the " +
			"same producer group: some of ours are asked of it, and decided late; give each its own TXSVC_ROCKETMQ_GROUP"})
	}
	return list
}

// foreignTold is how long a foreign half message is told of.
const foreignTold = 10 * time.Minute

// foreign remembers that brokers asked about half messages that are not ours.
type foreign struct {
	mu           sync.Mutex
	last, warned time.Time
}

// note is true when it is to be told in the log: not for each of them.
func (f *foreign) note(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = now
	if !f.warned.IsZero() && now.Sub(f.warned) < foreignTold {
		return false
	}
	f.warned = now
	return true
}

func (f *foreign) isRecent(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.last.IsZero() && now.Sub(f.last) < foreignTold
}
