package claimed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// recountsKept bounds the memory for recounts: after a long outage the rest is not counted.
const recountsKept = 10_000

// copies counts the visible copies of messages.
type copies struct {
	index   Index
	timing  txn.Timing
	metrics *txn.Metrics
	log     *slog.Logger
}

func (cs copies) count(ctx context.Context, c txn.Claim, indexed bool) (int, error) {
	return cs.index.Visible(ctx, c.Message, c.First, c.CreatedAt.Add(-cs.timing.ClockSkew), indexed)
}

// report logs and counts copies beyond the first.
func (cs copies) report(ctx context.Context, c txn.Claim, n int) {
	if n > 1 {
		cs.metrics.DuplicatesSuspected.Add(float64(n - 1))
		cs.log.ErrorContext(ctx, "message visible more than once", "id", c.Message.TxID, "message_id", c.Message.UniqKey, "copies", n)
	}
}

// Recounts are deliveries that were made because an earlier one was not known to be executed. If the earlier one was only
// held up for longer than leases allow for, there are two copies; a recount finds them. It is safe for concurrent use.
type Recounts struct {
	copies   copies
	evidence Evidence
	mu       sync.Mutex
	list     []recount // oldest first
}

type recount struct {
	claim txn.Claim
	due   time.Time
}

// add takes a claim without its body, which is not needed to ask the index.
func (rs *Recounts) add(c txn.Claim) {
	c.Message.Body = nil
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.list) < recountsKept {
		rs.list = append(rs.list, recount{c, time.Now().Add(rs.copies.timing.RecountAfter)})
	}
}

// next removes the oldest one that is due.
func (rs *Recounts) next() (txn.Claim, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.list) == 0 || time.Now().Before(rs.list[0].due) {
		return txn.Claim{}, false
	}
	c := rs.list[0].claim
	rs.list = rs.list[1:]
	return c, true
}

// CountDue counts the copies of the deliveries that are due. A broker that does not answer now costs a count, not a message.
func (rs *Recounts) CountDue(ctx context.Context) {
	for ctx.Err() == nil {
		c, ok := rs.next()
		if !ok {
			return
		}
		rs.count(ctx, c)
	}
}

func (rs *Recounts) count(ctx context.Context, c txn.Claim) {
	ctx, cancel := context.WithTimeout(ctx, rs.copies.timing.CallWithin)
	defer cancel()
	n, err := rs.copies.count(ctx, c, rs.evidence.Indexed(c.Half.Broker))
	if err != nil {
		rs.copies.log.WarnContext(ctx, "copies of a message that was delivered late are not counted", "id", c.Message.TxID, "error", err)
		return
	}
	rs.copies.report(ctx, c, n)
}
