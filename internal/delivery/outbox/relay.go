package outbox

import (
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// relayCount and relayBytes bound the messages that wait in memory; beyond that, rows wait in the database.
	relayCount = 10_000
	relayBytes = 32 << 20
	// sweepEvery is how often it is looked for messages in memory that cannot be sent soon.
	sweepEvery = 250 * time.Millisecond
)

// relay holds committed rows of this process whose messages nobody has sent yet, so that they need not be claimed. It is safe
// for concurrent use. The zero value is ready.
type relay struct {
	mu     sync.Mutex
	groups map[txn.Group][]txn.Claim // oldest first
	count  int
	bytes  int
	closed bool
}

// hasRoom says whether one more row can be taken.
func (r *relay) hasRoom() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isOpen()
}

func (r *relay) isOpen() bool { return !r.closed && r.count < relayCount && r.bytes < relayBytes }

// add takes a row, unless there is no room.
func (r *relay) add(name txn.Group, c txn.Claim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isOpen() {
		return false
	}
	if r.groups == nil {
		r.groups = make(map[txn.Group][]txn.Claim)
	}
	r.groups[name] = append(r.groups[name], c)
	r.count++
	r.bytes += len(c.Message.Body)
	return true
}

// take removes up to limit rows of a group, the oldest first.
func (r *relay) take(name txn.Group, limit int) []txn.Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut(name, limit)
}

func (r *relay) cut(name txn.Group, n int) []txn.Claim {
	all := r.groups[name]
	n = min(n, len(all))
	if n == len(all) {
		delete(r.groups, name)
	} else {
		r.groups[name] = all[n:]
	}
	for _, c := range all[:n] {
		r.count--
		r.bytes -= len(c.Message.Body)
	}
	return all[:n:n]
}

// sweep removes all rows of groups that are not open, and those that nobody may send any more.
func (r *relay) sweep(isOpen func(txn.Group) bool) (swept []txn.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for name, all := range r.groups {
		n := len(all)
		if isOpen(name) {
			n = 0
			for n < len(all) && now.After(all[n].Lease.WriteBefore) {
				n++
			}
		}
		swept = append(swept, r.cut(name, n)...)
	}
	return swept
}

// close removes all rows, and lets none in any more.
func (r *relay) close() (all []txn.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for name := range r.groups {
		all = append(all, r.cut(name, len(r.groups[name]))...)
	}
	return all
}
