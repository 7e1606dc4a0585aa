package claimed

import (
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// goalsKept bounds the memory for goals. When there are more, all are forgotten, and their rows wait a little longer.
const goalsKept = 10_000

// goals remember, for rows that wait for evidence, the moment up to which everything has to be settled. A lease that is given
// back ends only when the row is due again, so the next claim would set a later moment, although nothing was sent meanwhile:
// evidence that always lags by more than the broker needs to settle would never reach it. The zero value is ready.
type goals struct {
	mu sync.Mutex
	by map[string]goal // by the transaction's id
}

type goal struct {
	epoch  int64 // of the claim that has waited, and sent nothing
	before time.Time
}

// of returns the claim's goal: that of the claim before, when that was this process's own, else before.
func (g *goals) of(c txn.Claim, before time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, ok := g.by[c.Lease.ID]
	delete(g.by, c.Lease.ID)
	if ok && last.epoch == c.Lease.Epoch-1 && last.before.Before(before) {
		return last.before
	}
	return before
}

// remember notes the goal of a claim that sends nothing because it has to wait.
func (g *goals) remember(c txn.Claim, before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil || len(g.by) >= goalsKept {
		g.by = make(map[string]goal) // those of rows that others have delivered are never asked for again
	}
	g.by[c.Lease.ID] = goal{c.Lease.Epoch, before}
}
