package claimed

import (
	"context"

	"github.com/txsvc/txsvc/internal/txn"
)

// Queues knows whether the queue of a row was removed, and picks another one.
type Queues interface {
	// Removed says whether the queue was removed for good: a message that is put there is not found by consumers. An error
	// says that this is not known now.
	Removed(ctx context.Context, topic string, q txn.Queue) (bool, error)
	// Choose picks a living queue for a message whose own was removed.
	Choose(ctx context.Context, m txn.Message) (txn.Route, error)
	// NewUniqKey returns a fresh UNIQ_KEY.
	NewUniqKey() string
}

// Reroute gives a claimed row whose queue was removed to the outbox, for another queue, and the lease back. It is false, and
// the lease is kept, when the queue is there. It is asked before a half message is ended, because the broker makes half
// messages visible also in queues that their topic does not have any more, where nobody finds them.
//
// The row gets another UNIQ_KEY. So the half message belongs to an attempt that lost, and every check-back about it is
// answered with rollback; and a copy in the removed queue is not taken for the new message.
func (d *Deliverer) Reroute(ctx context.Context, c txn.Claim, path string) bool {
	removed, err := d.ports.Queues.Removed(ctx, c.Message.Topic, c.Message.Queue)
	if err == nil && !removed {
		return false
	}
	n, route := 0, txn.Route{}
	if err == nil && !c.Outbox {
		n, err = d.copies.count(ctx, c, d.ports.Evidence.Indexed(c.Half.Broker))
	}
	if err == nil {
		route, err = d.ports.Queues.Choose(ctx, c.Message)
	}
	if err != nil {
		d.failed(ctx, c, path, err)
		return true
	}
	why := "queue " + c.Message.Queue.String() + " was removed, or is not read any more"
	held, err := d.ports.Leases.Reroute(ctx, c.Lease, route, d.ports.Queues.NewUniqKey(), why)
	if err != nil || !held {
		d.log.WarnContext(ctx, "giving a message another queue; it is tried again", "id", c.Message.TxID, "error", err)
		return true
	}
	d.rerouted(ctx, c, path, route, n)
	return true
}

// rerouted logs it, wakes who delivers the row now, and rolls the half message back.
func (d *Deliverer) rerouted(ctx context.Context, c txn.Claim, path string, route txn.Route, copies int) {
	m := &c.Message
	d.metrics.Deliveries.WithLabelValues(path, "rerouted").Inc()
	d.log.WarnContext(ctx, "the queue of a message that waits was removed, or is not read any more; the message goes to another one", "id", m.TxID,
		"topic", m.Topic, "from", m.Queue.String(), "to", route.Queue.String(), "reason", route.Reason)
	d.ports.Wake(txn.Waiting{Topic: m.Topic, Broker: route.Queue.Broker, ShardKey: m.ShardKey, Ordered: c.Ordered})
	switch {
	case copies > 0:
		// It was made visible, and nobody was told: before the queue was removed, and so read, or after; that is not known.
		d.metrics.DuplicatesSuspected.Add(float64(copies))
		d.log.ErrorContext(ctx, "the message is also in the queue that was removed; consumers may have read it there",
			"id", m.TxID, "message_id", m.UniqKey, "copies", copies)
	case !c.Outbox:
		d.Rollback(ctx, c.Half)
	}
}
