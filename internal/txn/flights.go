package txn

import (
	"sync"
	"time"
)

// flight is a request with a client's id that is being worked on. The fields after done are read only when it is closed.
type flight struct {
	by          time.Time // when the leader's time is over
	done        chan struct{}
	fingerprint Fingerprint
	transaction *Transaction
	err         error
}

// flights holds the ids that this process is working on. The zero value is ready.
type flights struct {
	mu sync.Mutex
	by map[string]*flight
}

// join returns the flight of the id, and whether the caller leads it and has to land it, by the given time.
func (f *flights) join(id string, by time.Time) (*flight, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if current, ok := f.by[id]; ok {
		return current, false
	}
	if f.by == nil {
		f.by = make(map[string]*flight)
	}
	f.by[id] = &flight{by: by, done: make(chan struct{})}
	return f.by[id], true
}

// land publishes the outcome to those that followed.
func (f *flights) land(id string, landed *flight, t *Transaction, err error) {
	f.mu.Lock()
	delete(f.by, id)
	f.mu.Unlock()
	landed.transaction, landed.err = t, err
	close(landed.done)
}
