package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// recountAfter is how long after a message was made visible in an earlier holder's place its copies are counted. What a
	// network or a stopped process has held back so long is not seen any more.
	recountAfter = 30 * time.Second
	// recountsKept bounds the memory for them: after a long outage the rest is not counted.
	recountsKept = 10_000
)

// recounts are deliveries made because an earlier one was not known to be executed: if it was only held up, beyond what
// the leases allow for, there are two copies, which nobody would look for.
type recounts struct {
	mu   sync.Mutex
	list []recount // oldest first
}

type recount struct {
	claim txn.Claim
	due   time.Time
}

// add takes a claim without its body, which the index is not asked with.
func (rs *recounts) add(c txn.Claim, now time.Time) {
	c.Message.Body = nil
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.list) < recountsKept {
		rs.list = append(rs.list, recount{c, now.Add(recountAfter)})
	}
}

// next removes the oldest one that is due.
func (rs *recounts) next(now time.Time) (txn.Claim, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.list) == 0 || now.Before(rs.list[0].due) {
		return txn.Claim{}, false
	}
	c := rs.list[0].claim
	rs.list = rs.list[1:]
	return c, true
}

// recountDue asks the index once more; a broker that does not answer now costs a count, not a message.
func (r *Resolver) recountDue(ctx context.Context) {
	for ctx.Err() == nil {
		c, ok := r.recounts.next(time.Now())
		if !ok {
			return
		}
		r.recount(ctx, c)
	}
}

func (r *Resolver) recount(ctx context.Context, c txn.Claim) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	copies, err := r.visible(ctx, c, r.evidence.indexed(c.Half.Broker))
	if err != nil {
		r.log.WarnContext(ctx, "copies of a message that was delivered late are not counted", "id", c.Message.TxID, "error", err)
		return
	}
	r.suspect(ctx, c, copies)
}

// suspect tells of more than one copy.
func (r *Resolver) suspect(ctx context.Context, c txn.Claim, copies int) {
	if copies > 1 {
		r.metrics.DuplicatesSuspected.Add(float64(copies - 1))
		r.log.ErrorContext(ctx, "message visible more than once", "id", c.Message.TxID, "message_id", c.Message.UniqKey, "copies", copies)
	}
}
