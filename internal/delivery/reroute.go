package delivery

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Queues knows what became of the queue of a row, and of another one.
type Queues interface {
	// Unread says, from memory, that consumers are known not to read the queue now.
	Unread(topic string, q txn.Queue) bool
	// Removed says whether the queue was removed for good: a message that is put there is not found by consumers. An error
	// says that this is not known now.
	Removed(ctx context.Context, topic string, q txn.Queue) (bool, error)
	// Choose picks a living queue for a message whose own was removed.
	Choose(ctx context.Context, m txn.Message) (txn.Route, error)
	// NewUniqKey returns a fresh UNIQ_KEY.
	NewUniqKey() string
}

// reroute gives a claimed row whose queue was removed to the relay, for another queue; it is false when the queue is
// there. The broker makes half messages visible also in queues that their topic does not have any more, where nobody
// finds them.
//
// The row gets another UNIQ_KEY. So the half message belongs to an attempt that lost, and every check-back about it is
// answered with rollback; and what the index knows of it is not taken for the new message.
func (r *Resolver) reroute(ctx context.Context, c txn.Claim, path string) bool {
	removed, err := r.queues.Removed(ctx, c.Message.Topic, c.Message.Queue)
	if err == nil && !removed {
		return false
	}
	copies, route := 0, txn.Route{}
	if err == nil && !c.Outbox {
		copies, err = r.visible(ctx, c, r.evidence.indexed(c.Half.Broker))
	}
	if err == nil {
		route, err = r.queues.Choose(ctx, c.Message)
	}
	if err != nil {
		r.failed(ctx, c, path, err)
		return true
	}
	why := "queue " + c.Message.Queue.String() + " was removed, or is not read any more"
	held, err := r.store.Reroute(ctx, c.Lease, route, r.queues.NewUniqKey(), why)
	if err != nil || !held {
		r.log.WarnContext(ctx, "giving a message another queue; it is tried again", "id", c.Message.TxID, "error", err)
		return true
	}
	r.rerouted(ctx, c, path, route, copies)
	return true
}

// rerouted tells of it, wakes the relay, and rolls the half message back. When that is lost, a check-back does it.
func (r *Resolver) rerouted(ctx context.Context, c txn.Claim, path string, route txn.Route, copies int) {
	m := &c.Message
	r.metrics.Deliveries.WithLabelValues(path, "rerouted").Inc()
	r.log.WarnContext(ctx, "the queue of a message that waits was removed, or is not read any more; the message goes to another one", "id", m.TxID,
		"topic", m.Topic, "from", m.Queue.String(), "to", route.Queue.String(), "reason", route.Reason)
	r.Wake(txn.Waiting{Topic: m.Topic, Broker: route.Queue.Broker, ShardKey: m.ShardKey, Ordered: c.Ordered})
	if copies > 0 {
		// It was made visible, and nobody was told. Whether before the queue was removed, and so read, is not known.
		r.metrics.DuplicatesSuspected.Add(float64(copies))
		r.log.ErrorContext(ctx, "the message is also in the queue that was removed; consumers may have read it there",
			"id", m.TxID, "message_id", m.UniqKey, "copies", copies)
		return
	}
	if c.Outbox {
		return
	}
	if err := r.broker.End(ctx, c.Half, txn.DecisionRollback, time.Time{}); err != nil {
		r.log.InfoContext(ctx, "rollback not confirmed, left to a check-back", "message_id", m.UniqKey, "error", err)
	}
}

// rerouteAll does so for claims of one queue that the broker has refused since it does not have it, or that consumers do not
// read. It is false when the queue is there.
func (s *sending) rerouteAll(ctx context.Context, claims []txn.Claim) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for i, c := range claims {
		if !s.reroute(ctx, c, "relay") {
			if i > 0 {
				s.giveBack(ctx, claims[i:], s.why)
			}
			return i > 0
		}
		s.stop(c)
	}
	return true
}
