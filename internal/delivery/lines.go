package delivery

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/txn"
)

// linesStep delivers from the lines that are known to have something, or goes on with a look at all lines.
func (r *relay) linesStep(ctx context.Context, g *group) bool {
	brokers := r.brokers(g.name.Topic)
	if len(brokers) == 0 {
		r.rest(g)
		return false
	}
	keys, more := r.nextLines(ctx, g, brokers)
	if len(keys) == 0 {
		return more
	}
	release := r.slot()
	claims, err := r.store.ClaimLines(ctx, g.name.Topic, keys, brokers, max(lineLimit, relayLimit/len(keys)))
	release()
	if err != nil {
		r.log.DebugContext(ctx, "claiming lines", "error", err)
		r.rest(g)
		return false
	}
	if len(claims) == 0 {
		return more
	}
	again := r.deliverLines(context.WithoutCancel(ctx), claims)
	if err := r.store.FlushMarks(context.WithoutCancel(ctx)); err != nil { // else those behind are not seen to be next
		r.log.DebugContext(ctx, "marking messages delivered; it is tried again", "error", err)
		r.rest(g)
		return false
	}
	r.mu.Lock()
	for _, key := range again {
		g.know(key)
	}
	r.mu.Unlock()
	return true
}

// nextLines returns lines that may have something: those that are known, or those that a look has found. More says that
// there may be others.
func (r *relay) nextLines(ctx context.Context, g *group, brokers []string) (keys []string, more bool) {
	r.mu.Lock()
	for key := range g.keys {
		if len(keys) == linesAtOnce {
			break
		}
		keys = append(keys, key)
		delete(g.keys, key)
	}
	due, after := g.due, g.after
	more = due || len(g.keys) > 0
	r.mu.Unlock()
	if len(keys) > 0 || !due {
		return keys, more
	}
	release := r.slot()
	found, last, err := r.store.DueLines(ctx, g.name.Topic, after, brokers, linesLooked)
	release()
	if err != nil {
		r.log.DebugContext(ctx, "looking for lines", "error", err)
		r.rest(g)
		return nil, false
	}
	keys = found[:min(len(found), linesAtOnce)]
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range found[len(keys):] {
		g.know(key)
	}
	g.after, g.due = last, last != ""
	return keys, g.due || len(g.keys) > 0
}

// deliverLines delivers claims that come line by line, in order, and returns the lines of which all were delivered: they
// may have more. What stops a line gives the rest of it back.
func (r *relay) deliverLines(ctx context.Context, claims []txn.Claim) (again []string) {
	lines := byLine(claims)
	for len(lines) > 0 {
		var parts [][]txn.Claim
		for i, line := range lines {
			part := alike(line)
			parts, lines[i] = append(parts, part), line[len(part):]
		}
		delivered := r.deliverParts(ctx, parts)
		var rest [][]txn.Claim
		for i, line := range lines {
			switch {
			case !delivered[i]:
				r.giveBack(ctx, line, "")
			case len(line) > 0:
				rest = append(rest, line)
			default:
				again = append(again, parts[i][0].Message.ShardKey)
			}
		}
		lines = rest
	}
	return again
}

// byLine cuts claims where one line ends.
func byLine(claims []txn.Claim) (lines [][]txn.Claim) {
	for start, i := 0, 1; i <= len(claims); i++ {
		if i == len(claims) || claims[i].Message.ShardKey != claims[start].Message.ShardKey {
			lines = append(lines, claims[start:i])
			start = i
		}
	}
	return lines
}

// alike returns the beginning of a line that goes one way: to one queue, with half messages or without.
func alike(line []txn.Claim) []txn.Claim {
	n := 1
	for n < len(line) && line[n].Outbox == line[0].Outbox && line[n].Message.Queue == line[0].Message.Queue {
		n++
	}
	return line[:n]
}

// deliverParts delivers parts of different lines: those without half messages together, queue by queue, the others each in
// its order, beside each other. It says which were delivered whole.
func (r *relay) deliverParts(ctx context.Context, parts [][]txn.Claim) []bool {
	delivered := make([]bool, len(parts))
	var bodies []txn.Claim
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, part := range parts {
		if part[0].Outbox {
			bodies = append(bodies, part...)
			continue
		}
		g.Go(func() error {
			delivered[i] = r.endInOrder(ctx, part)
			return nil
		})
	}
	sent := r.send(ctx, bodies)
	_ = g.Wait()
	for i, part := range parts {
		if part[0].Outbox {
			delivered[i] = true
			for _, c := range part {
				delivered[i] = delivered[i] && sent[c.Message.TxID]
			}
		}
	}
	return delivered
}

// endInOrder makes half messages of one line visible, each when the one before is.
func (r *relay) endInOrder(ctx context.Context, part []txn.Claim) bool {
	for i, c := range part {
		if time.Now().After(c.Lease.WriteBefore) {
			r.giveBack(ctx, part[i:], "")
			return false
		}
		if !r.deliver(ctx, c, "resolver") {
			r.giveBack(ctx, part[i+1:], "")
			return false
		}
	}
	return true
}

// giveBack lets others deliver what was not sent.
func (r *relay) giveBack(ctx context.Context, claims []txn.Claim, why string) {
	if len(claims) == 0 {
		return
	}
	leases := make([]txn.Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.store.GiveBack(ctx, leases, 0, why); err != nil {
		r.log.WarnContext(ctx, "giving claims back; their leases end by themselves", "claims", len(claims), "error", err)
	}
}
