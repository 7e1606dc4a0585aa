package delivery

import (
	"context"
	"slices"
	"sync"

	"github.com/txsvc/txsvc/internal/txn"
)

// attempts holds the attempts whose COMMIT was not answered, and finds out what became of them. It is safe for concurrent
// use. When the process ends it forgets them; then check-backs decide.
type attempts struct {
	decisions Decisions
	begun     Begun
	claimed   interface {
		Rollback(ctx context.Context, h txn.Half)
	}
	wake    func(txn.Waiting)
	timing  txn.Timing
	metrics *txn.Metrics

	mu   sync.Mutex
	byID map[string][]*txn.Attempt // there may be several with one id
}

func newAttempts(decisions Decisions, begun Begun, claimed deliverer, wake func(txn.Waiting), timing txn.Timing, metrics *txn.Metrics) *attempts {
	return &attempts{decisions: decisions, begun: begun, claimed: claimed, wake: wake, timing: timing, metrics: metrics, byID: make(map[string][]*txn.Attempt)}
}

func (as *attempts) add(a *txn.Attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.byID[a.Request.ID] = append(as.byID[a.Request.ID], a)
}

func (as *attempts) find(id string) *txn.Attempt {
	as.mu.Lock()
	defer as.mu.Unlock()
	if list := as.byID[id]; len(list) > 0 {
		return list[0]
	}
	return nil
}

func (as *attempts) all() (all []*txn.Attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, list := range as.byID {
		all = append(all, list...)
	}
	return all
}

func (as *attempts) remove(decided *txn.Attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	id := decided.Request.ID
	rest := slices.DeleteFunc(slices.Clone(as.byID[id]), func(a *txn.Attempt) bool { return a == decided })
	if len(rest) == 0 {
		delete(as.byID, id)
		return
	}
	as.byID[id] = rest
}

// decideAll finds out what became of the attempts. The first that cannot be asked about ends the round, because then the
// database is away.
func (as *attempts) decideAll(ctx context.Context) {
	for _, a := range as.all() {
		if !as.decide(ctx, a) {
			return
		}
	}
}

// decide finds out what became of one attempt. It is false when the database does not say.
func (as *attempts) decide(ctx context.Context, a *txn.Attempt) bool {
	ctx, cancel := context.WithTimeout(ctx, as.timing.CallWithin)
	defer cancel()
	resolution, t, err := as.decisions.Decide(ctx, a.Message, a.Half)
	if err != nil {
		return false
	}
	switch resolution {
	case txn.ResolutionUndecided:
		return true
	case txn.ResolutionRollback:
		as.begun.Settle(a.CreatedAt)
		if a.Via != txn.ViaOutbox {
			as.claimed.Rollback(ctx, a.Half)
		}
		as.metrics.Transactions.WithLabelValues(a.Kind.Name, "rolled_back").Inc()
	default: // committed: the row is delivered when its lease ends, or at once when it has none
		as.begun.HandOver(a.CreatedAt)
		as.metrics.Transactions.WithLabelValues(a.Kind.Name, "committed").Inc()
		as.wake(t.Waiting())
	}
	as.remove(a)
	a.Decided()
	return true
}
