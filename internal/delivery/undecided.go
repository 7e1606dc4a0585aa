package delivery

import (
	"context"
	"sync"

	"github.com/txsvc/txsvc/internal/txn"
)

// undecided holds attempts whose COMMIT was not answered, by id: there may be several with one id.
type undecided struct {
	mu       sync.Mutex
	attempts map[string][]*txn.Attempt
}

// Add takes an attempt over; see txn.Undecided. It is forgotten when the process ends: then a check-back decides.
func (r *Resolver) Add(a *txn.Attempt) {
	u := &r.undecided
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempts[a.Request.ID] = append(u.attempts[a.Request.ID], a)
}

// Find returns an attempt with the id whose outcome is being found out, or nil.
func (r *Resolver) Find(id string) *txn.Attempt {
	u := &r.undecided
	u.mu.Lock()
	defer u.mu.Unlock()
	if list := u.attempts[id]; len(list) > 0 {
		return list[0]
	}
	return nil
}

func (u *undecided) snapshot() []*txn.Attempt {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []*txn.Attempt
	for _, list := range u.attempts {
		all = append(all, list...)
	}
	return all
}

func (u *undecided) remove(decided *txn.Attempt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := decided.Request.ID
	var rest []*txn.Attempt
	for _, a := range u.attempts[id] {
		if a != decided {
			rest = append(rest, a)
		}
	}
	if len(rest) == 0 {
		delete(u.attempts, id)
		return
	}
	u.attempts[id] = rest
}

// decideAll finds out what became of the undecided attempts; the first that cannot be asked about ends the round, since
// then the database is away.
func (r *Resolver) decideAll(ctx context.Context) {
	for _, a := range r.undecided.snapshot() {
		if !r.decide(ctx, a) {
			return
		}
	}
}

func (r *Resolver) decide(ctx context.Context, a *txn.Attempt) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	verdict, t, err := r.store.Decide(ctx, a.Message, a.Half)
	if err != nil {
		return false
	}
	switch verdict {
	case txn.VerdictUndecided:
		return true
	case txn.VerdictRollback:
		if a.Via != txn.ViaOutbox {
			r.rollback(ctx, a.Half)
		}
		r.metrics.Transactions.WithLabelValues(a.Kind.Name, "rolled_back").Inc()
	default: // committed: the row is delivered when its lease ends, or at once when it has none
		r.metrics.Transactions.WithLabelValues(a.Kind.Name, "committed").Inc()
		r.Wake(t.Waiting())
	}
	r.undecided.remove(a)
	a.Decided()
	return true
}
