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
	switch own, err := r.own(ctx, m, h); {
	case err != nil:
		r.log.WarnContext(ctx, "check-back not decided; the broker asks again", "id", m.TxID, "error", err)
	case !own:
		r.foreigner(ctx, m, h)
		return
	default:
		answer = r.answer(ctx, m, h)
	}
	r.metrics.Checkbacks.WithLabelValues(m.Kind, answer).Inc()
	r.log.InfoContext(ctx, "check-back answered", "id", m.TxID, "message_id", h.UniqKey, "answer", answer)
}

// own says whether the half message is of this service and its database. Another service that uses the same producer group
// by mistake, or the same service with another database, has half messages that look like ours; what is answered to them, its
// transactions would have to live with.
func (r *Resolver) own(ctx context.Context, m txn.Message, h txn.Half) (bool, error) {
	if m.TxID == "" {
		return false, nil
	}
	return r.store.OwnHalf(ctx, m.TxID, h.UniqKey)
}

// foreigner leaves a foreign half message to its own service, and tells of it.
func (r *Resolver) foreigner(ctx context.Context, m txn.Message, h txn.Half) {
	r.metrics.Checkbacks.WithLabelValues("", "foreign").Inc()
	if r.foreign.note(time.Now()) {
		r.log.ErrorContext(ctx, "check-backs come for half messages of another service or database, which uses this producer group; they are left unanswered",
			"message_id", h.UniqKey, "topic", m.Topic, "told_again_after", foreignTold.String())
	}
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
