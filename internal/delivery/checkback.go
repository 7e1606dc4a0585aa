package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// checkbacks answers check-backs. It is safe for concurrent use.
type checkbacks struct {
	decisions Decisions
	claims    HalfClaims
	// evidence says for which brokers claiming makes sense.
	evidence interface{ KeepsUp(broker string) bool }
	claimed  deliverer
	foreign  foreign
	timing   txn.Timing
	metrics  *txn.Metrics
	log      *slog.Logger
}

// answer answers one check-back; see Service.Checkback.
func (cb *checkbacks) answer(ctx context.Context, m txn.Message, h txn.Half) {
	ctx, cancel := context.WithTimeout(ctx, cb.timing.CallWithin)
	defer cancel()
	if m.TxID == "" && m.Kind == txn.ProbeKind {
		cb.claimed.Rollback(ctx, h)
		return
	}
	said := "unknown"
	switch own, err := cb.isOwn(ctx, m, h); {
	case err != nil:
		cb.log.WarnContext(ctx, "check-back not decided; the broker asks again", "id", m.TxID, "error", err)
	case !own:
		cb.leave(ctx, m, h)
		return
	default:
		said = cb.decide(ctx, m, h)
	}
	cb.metrics.Checkbacks.WithLabelValues(m.Kind, said).Inc()
	cb.log.InfoContext(ctx, "check-back answered", "id", m.TxID, "message_id", h.UniqKey, "answer", said)
}

// isOwn says whether the half message is of this service and its database. Another service that uses the same producer group
// by mistake, or the same service with another database, has half messages that look like ours; its transactions would have
// to live with an answer to them.
func (cb *checkbacks) isOwn(ctx context.Context, m txn.Message, h txn.Half) (bool, error) {
	if m.TxID == "" {
		return false, nil
	}
	return cb.decisions.OwnHalf(ctx, m.TxID, h.UniqKey)
}

// leave leaves a foreign half message to its own service, and logs that.
func (cb *checkbacks) leave(ctx context.Context, m txn.Message, h txn.Half) {
	cb.metrics.Checkbacks.WithLabelValues("", "foreign").Inc()
	if cb.foreign.note() {
		cb.log.ErrorContext(ctx, "check-backs come for half messages of another service or database, which uses this producer group; they are left unanswered",
			"message_id", h.UniqKey, "topic", m.Topic, "told_again_after", foreignFor.String())
	}
}

func (cb *checkbacks) decide(ctx context.Context, m txn.Message, h txn.Half) (said string) {
	resolution, _, err := cb.decisions.Decide(ctx, m, h)
	if err != nil {
		cb.log.WarnContext(ctx, "check-back not decided; the broker asks again", "id", m.TxID, "error", err)
		return "unknown"
	}
	switch resolution {
	case txn.ResolutionRollback, txn.ResolutionDelivered:
		cb.claimed.Rollback(ctx, h)
		return "rollback"
	case txn.ResolutionCommit:
		return cb.commit(ctx, m, h)
	default:
		return "unknown"
	}
}

// commit delivers through a claim, with the coordinates of the copy that was asked about. When somebody else holds the row,
// or the broker's evidence does not keep up, the copy is left for the next check-back, which finds the message delivered.
func (cb *checkbacks) commit(ctx context.Context, m txn.Message, h txn.Half) (said string) {
	if !cb.evidence.KeepsUp(h.Broker) {
		return "unknown"
	}
	claim, ok, err := cb.claims.ClaimOne(ctx, m.TxID, h.UniqKey)
	if err != nil || !ok {
		return "unknown"
	}
	claim.Half = h
	if !cb.claimed.Deliver(ctx, claim, "checkback") {
		return "unknown"
	}
	return "commit"
}

// foreignFor is how long a foreign half message degrades the service.
const foreignFor = 10 * time.Minute

// foreign remembers that brokers asked about half messages that are not ours.
type foreign struct {
	mu           sync.Mutex
	last, warned time.Time
}

// note is true when it is to be logged, which is not for each of them.
func (f *foreign) note() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
	if !f.warned.IsZero() && time.Since(f.warned) < foreignFor {
		return false
	}
	f.warned = f.last
	return true
}

func (f *foreign) isRecent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.last.IsZero() && time.Since(f.last) < foreignFor
}
