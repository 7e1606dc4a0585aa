package delivery

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Checkback answers the broker's question about one copy of a half message. Leaving it unanswered is an answer too: the
// broker asks again.
func (r *Resolver) Checkback(ctx context.Context, m txn.Message, h txn.Half) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if m.TxID == "" && m.Kind == txn.MarkKind {
		r.rollback(ctx, h)
		return
	}
	answer := "unknown"
	if m.TxID == "" {
		r.log.ErrorContext(ctx, "check-back for a half message that is not of this service: another producer uses its group",
			"message_id", h.UniqKey, "topic", m.Topic)
	} else {
		answer = r.answer(ctx, m, h)
	}
	r.metrics.Checkbacks.WithLabelValues(m.Kind, answer).Inc()
	r.log.InfoContext(ctx, "check-back answered", "id", m.TxID, "message_id", h.UniqKey, "answer", answer)
}

func (r *Resolver) answer(ctx context.Context, m txn.Message, h txn.Half) string {
	verdict, _, err := r.store.Decide(ctx, m, h)
	if err != nil {
		r.log.WarnContext(ctx, "check-back not decided; the broker asks again", "id", m.TxID, "error", err)
		return "unknown"
	}
	switch verdict {
	case txn.VerdictRollback, txn.VerdictDelivered:
		return r.rollback(ctx, h)
	case txn.VerdictCommit:
		return r.commit(ctx, m, h)
	default:
		return "unknown"
	}
}

func (r *Resolver) rollback(ctx context.Context, h txn.Half) string {
	if err := r.broker.End(ctx, h, txn.DecisionRollback, time.Time{}); err != nil {
		r.log.InfoContext(ctx, "rollback not confirmed; the broker asks again", "message_id", h.UniqKey, "error", err)
	}
	return "rollback"
}

// commit delivers through a claim, with the coordinates of the copy that was asked about. When somebody else holds the
// row, or too little is known of the broker, the copy is left for the next check-back, which finds the message delivered.
func (r *Resolver) commit(ctx context.Context, m txn.Message, h txn.Half) string {
	if len(r.evidence.ready([]string{h.Broker}, time.Now())) == 0 {
		return "unknown"
	}
	claim, ok, err := r.store.ClaimOne(ctx, m.TxID, h.UniqKey)
	if err != nil || !ok {
		return "unknown"
	}
	claim.Half = h
	if !r.deliver(ctx, claim, "checkback") {
		return "unknown"
	}
	return "commit"
}
