// Package claimed delivers the message of one claimed row, once. It is what the resolver, check-backs, lines and the outbox
// have in common: it finds out whether an earlier holder of the row has made the message visible, ends the half message, gives
// the message another queue when its own was removed, and gives the lease back.
package claimed

import (
	"context"
	"log/slog"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Leases gives claimed rows back.
type Leases interface {
	// Defer gives a lease back of which nothing is under way, and keeps others from the row for a while.
	Defer(ctx context.Context, lease txn.Lease, wait time.Duration, reason string) error
	// GiveBack is Defer for leases of which nothing was sent: these claims do not count.
	GiveBack(ctx context.Context, leases []txn.Lease, wait time.Duration, reason string) error
	// Reroute gives a row another queue and UNIQ_KEY, and the lease back: from now on the row has no half message. It is false
	// when the lease was lost.
	Reroute(ctx context.Context, lease txn.Lease, route txn.Route, uniqKey, reason string) (bool, error)
}

// Marks notes what is delivered.
type Marks interface {
	// MarkDelivered writes the delivered mark soon; see txn.Store.
	MarkDelivered(id string, at time.Time, ordered bool)
}

// Broker makes messages visible. Errors are as for txn.Broker.
type Broker interface {
	// End ends a half message; see txn.Broker.
	End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error
	// Send sends the message as a normal one, with its UNIQ_KEY, to its queue. The frame is not written after writeBefore.
	Send(ctx context.Context, m txn.Message, writeBefore time.Time) error
}

// Index finds visible messages.
type Index interface {
	// Visible counts the messages with m's UNIQ_KEY in m's queue that were stored since then. m's half message was stored first
	// at the commit-log offset; -1: it has none. indexed says that the broker's index is known to tell; otherwise the queue is
	// read.
	Visible(ctx context.Context, m txn.Message, first int64, since time.Time, indexed bool) (int, error)
}

// Evidence knows what became of all that earlier holders sent.
type Evidence interface {
	// Settled says how long it takes until all that reached the broker before the given time is executed and can be found, or is
	// dropped; 0: it is. indexed says that the broker's index tells what is visible; otherwise queues have to be read.
	Settled(broker, topic string, before time.Time) (wait time.Duration, indexed bool)
	// Indexed says the same of the index without asking for more evidence.
	Indexed(broker string) bool
}

// Ports are what a Deliverer uses.
type Ports struct {
	Leases   Leases
	Marks    Marks
	Broker   Broker
	Index    Index
	Queues   Queues
	Evidence Evidence
	// Wake starts the delivery of a row that has no half message any more.
	Wake func(txn.Waiting)
}

// Deliverer delivers claimed rows. It is safe for concurrent use.
type Deliverer struct {
	ports    Ports
	timing   txn.Timing
	copies   copies
	goals    goals
	recounts *Recounts
	metrics  *txn.Metrics
	log      *slog.Logger
}

// New returns a Deliverer, and the Recounts of what it delivers.
func New(ports Ports, timing txn.Timing, metrics *txn.Metrics, log *slog.Logger) (*Deliverer, *Recounts) {
	c := copies{index: ports.Index, timing: timing, metrics: metrics, log: log}
	recounts := &Recounts{copies: c, evidence: ports.Evidence}
	return &Deliverer{ports: ports, timing: timing, copies: c, recounts: recounts, metrics: metrics, log: log}, recounts
}

// Deliver makes the message of a claimed row with a half message visible, and says whether it is known to be. If not, the
// lease is given back, unless the broker may still execute what was sent. The path is the metrics' label.
func (d *Deliverer) Deliver(ctx context.Context, c txn.Claim, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, d.timing.CallWithin)
	defer cancel()
	indexed, settled := d.settled(ctx, c)
	if !settled || d.Reroute(ctx, c, path) {
		return false
	}
	if visible, known := d.seen(ctx, c, path, indexed); visible || !known {
		return visible
	}
	err := d.ports.Broker.End(ctx, c.Half, txn.DecisionCommit, c.Lease.WriteBefore)
	if txn.ReasonOf(err) == txn.ReasonHalfGone {
		d.log.WarnContext(ctx, "the broker no longer has the half message, sending the stored body", "id", c.Message.TxID, "error", err)
		err = d.ports.Broker.Send(ctx, c.Message, c.Lease.WriteBefore)
	}
	if err != nil {
		d.failed(ctx, c, path, err)
		return false
	}
	d.ports.Marks.MarkDelivered(c.Message.TxID, time.Now(), c.Ordered)
	d.Recount(c)
	d.metrics.Delivered(path, c.Message.Topic, c.Message.Queue)
	return true
}

// Look finds out whether an earlier holder of a row without a half message has made its message visible. It is not known
// when that cannot be found out now: then the lease is given back.
func (d *Deliverer) Look(ctx context.Context, c txn.Claim, path string) (visible, known bool) {
	ctx, cancel := context.WithTimeout(ctx, d.timing.CallWithin)
	defer cancel()
	indexed, settled := d.settled(ctx, c)
	if !settled {
		return false, false
	}
	return d.seen(ctx, c, path, indexed)
}

// settled says whether what earlier holders sent is executed and can be found, or is dropped; if not, the lease is given
// back. indexed says that the index tells; otherwise the queue has to be read.
func (d *Deliverer) settled(ctx context.Context, c txn.Claim) (indexed, settled bool) {
	goal := d.goals.of(c, c.FreeSince.Add(-d.timing.Quiet()))
	wait, indexed := d.ports.Evidence.Settled(c.Half.Broker, c.Message.Topic, goal)
	if wait > 0 {
		d.goals.remember(c, goal)
		d.postpone(ctx, c, wait, "waiting until what was sent before is executed by the broker and in its index, or dropped")
	}
	return indexed, wait == 0
}

// seen looks for a message that an earlier holder may have made visible. When that fails, the lease is given back.
func (d *Deliverer) seen(ctx context.Context, c txn.Claim, path string, indexed bool) (visible, known bool) {
	n, err := d.copies.count(ctx, c, indexed)
	if err != nil {
		d.failed(ctx, c, path, err)
		return false, false
	}
	if n == 0 {
		return false, true
	}
	d.copies.report(ctx, c, n)
	d.ports.Marks.MarkDelivered(c.Message.TxID, time.Now(), c.Ordered)
	d.metrics.Deliveries.WithLabelValues(path, "found").Inc()
	d.metrics.QueueMessage(c.Message.Topic, c.Message.Queue)
	return true, true
}

// failed gives the lease back, unless the broker may still execute what was sent: then the lease has to end by itself.
func (d *Deliverer) failed(ctx context.Context, c txn.Claim, path string, err error) {
	d.log.WarnContext(ctx, "delivery not confirmed; it is tried again", "id", c.Message.TxID, "attempts", c.Attempts, "error", err)
	if txn.IsMaybeSent(err) {
		d.metrics.Deliveries.WithLabelValues(path, "unconfirmed").Inc()
		return
	}
	d.metrics.Deliveries.WithLabelValues(path, "failed").Inc()
	d.postpone(ctx, c, d.backOff(c.Attempts), txn.Why(err))
}

// postpone gives the lease back and keeps others from the row for a while. The claim counts, also when nothing was sent.
func (d *Deliverer) postpone(ctx context.Context, c txn.Claim, wait time.Duration, reason string) {
	if err := d.ports.Leases.Defer(context.WithoutCancel(ctx), c.Lease, wait, reason); err != nil {
		d.log.WarnContext(ctx, "giving a claim back; its lease ends by itself", "id", c.Message.TxID, "error", err)
	}
}

// backOff is how long a row is left alone after so many claims.
func (d *Deliverer) backOff(attempts int) time.Duration {
	return min(d.timing.FirstBackoff<<min(max(attempts-1, 0), 10), d.timing.LongestBackoff)
}

// GiveBack lets others deliver rows of which nothing was sent. These claims do not count. why is the error that kept this
// process from sending, or nil.
func (d *Deliverer) GiveBack(ctx context.Context, claims []txn.Claim, why error) {
	if len(claims) == 0 {
		return
	}
	leases := make([]txn.Lease, len(claims))
	for i, c := range claims {
		leases[i] = c.Lease
	}
	ctx, cancel := context.WithTimeout(ctx, d.timing.CallWithin)
	defer cancel()
	if err := d.ports.Leases.GiveBack(ctx, leases, 0, txn.Why(why)); err != nil {
		d.log.WarnContext(ctx, "giving claims back; their leases end by themselves", "claims", len(claims), "error", err)
	}
}

// Recount has the copies of a message counted some time after its delivery.
func (d *Deliverer) Recount(c txn.Claim) { d.recounts.add(c) }

// Rollback tells the broker that a half message never becomes visible. A rollback that is lost costs a check-back.
func (d *Deliverer) Rollback(ctx context.Context, h txn.Half) {
	if err := d.ports.Broker.End(ctx, h, txn.DecisionRollback, time.Time{}); err != nil {
		d.log.InfoContext(ctx, "rollback not confirmed; the broker asks again", "message_id", h.UniqKey, "error", err)
	}
}
