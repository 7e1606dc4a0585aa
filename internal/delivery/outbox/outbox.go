// Package outbox delivers rows that have no half message: it sends their messages as normal ones, in batches for each queue.
package outbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/delivery/groups"
	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	claimLimit = 500     // rows in one claim
	parallel   = 32      // queues, and looks for earlier copies, that are worked on at once
	path       = "relay" // the metrics' label
)

// Claims leases rows.
type Claims interface {
	// ClaimOutbox leases rows without a half message that belong to no line, longest waiting first.
	ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error)
}

// Rows notes what became of claimed rows.
type Rows interface {
	// MarkAll writes the delivered marks, and returns when the table has them.
	MarkAll(ctx context.Context, ids []string, at time.Time) error
	// MarkDelivered writes one mark soon; see txn.Store.
	MarkDelivered(id string, at time.Time, ordered bool)
	// HandOver gives a tracked row to who delivers pending ones, and has no effect on others; see txn.Store.
	HandOver(began time.Time)
	// Park gives a lease back, and keeps everybody from the row until an operator asks for it.
	Park(ctx context.Context, lease txn.Lease, reason string) error
}

// Broker sends. Errors are as for txn.Broker.
type Broker interface {
	// Send sends the message as a normal one, with its UNIQ_KEY, to its queue. The frame is not written after writeBefore.
	Send(ctx context.Context, m txn.Message, writeBefore time.Time) error
	// SendBatch is Send for several messages of one topic and queue: they become visible in their order, all or none.
	SendBatch(ctx context.Context, messages []txn.Message, writeBefore time.Time) error
	// Size is what a message takes of a batch, in bytes.
	Size(m *txn.Message) int
}

// Queues knows which queues consumers read.
type Queues interface {
	// Unread says, from memory, that consumers are known not to read the queue now.
	Unread(topic string, q txn.Queue) bool
}

// Gate knows where messages can be sent to now.
type Gate interface {
	// IsOpen says whether the topic on the broker can be sent to.
	IsOpen(name txn.Group) bool
	// BackOff pauses the topic on the broker, and returns how long.
	BackOff(name txn.Group, busy bool) time.Duration
	// Reopen ends the pause.
	Reopen(name txn.Group)
}

// Claimed works on single claimed rows.
type Claimed interface {
	// Look finds out whether an earlier holder has made the message visible. When that is not known, it gives the lease back.
	Look(ctx context.Context, c txn.Claim, path string) (visible, known bool)
	// Reroute gives a row whose queue was removed another queue, and the lease back; it is false when the queue is there.
	Reroute(ctx context.Context, c txn.Claim, path string) bool
	// GiveBack gives leases back of which nothing was sent, because of the error, or nil.
	GiveBack(ctx context.Context, claims []txn.Claim, why error)
	// Recount has the copies of a message counted some time after its delivery.
	Recount(c txn.Claim)
}

// Ports are what an Outbox uses.
type Ports struct {
	Claims  Claims
	Rows    Rows
	Broker  Broker
	Queues  Queues
	Gate    Gate
	Claimed Claimed
}

// Outbox delivers rows without half messages. It is safe for concurrent use.
type Outbox struct {
	ports   Ports
	relay   relay
	looks   looks
	runner  *groups.Runner[txn.Group]
	timing  txn.Timing
	metrics *txn.Metrics
	log     *slog.Logger
}

// New returns an Outbox. Run has to be running for rows to be claimed.
func New(ports Ports, timing txn.Timing, metrics *txn.Metrics, log *slog.Logger) *Outbox {
	o := &Outbox{ports: ports, timing: timing, metrics: metrics, log: log}
	o.runner = groups.NewRunner(ports.Gate.IsOpen, o.step)
	return o
}

// Wake says that rows of a topic wait on a broker.
func (o *Outbox) Wake(name txn.Group) {
	o.looks.add(name)
	o.runner.Wake(name)
}

// Takes says whether Relay can be expected to take a row of the group now.
func (o *Outbox) Takes(name txn.Group) bool { return o.ports.Gate.IsOpen(name) && o.relay.hasRoom() }

// Relay delivers a tracked row that this process has just committed, from memory. It is false when it does not.
func (o *Outbox) Relay(c txn.Claim) bool {
	name := txn.Group{Broker: c.Message.Queue.Broker, Topic: c.Message.Topic}
	if !o.ports.Gate.IsOpen(name) || !o.relay.add(name, c) {
		return false
	}
	o.runner.Wake(name)
	return true
}

// Run delivers what waits until ctx is done. What is being sent then is finished, and what waits in memory is given back.
func (o *Outbox) Run(ctx context.Context) {
	var sweeper sync.WaitGroup
	sweeper.Go(func() { o.sweep(ctx) })
	o.runner.Run(ctx)
	sweeper.Wait()
	o.ports.Claimed.GiveBack(context.WithoutCancel(ctx), o.relay.close(), nil)
}

// sweep gives back what waits in memory for a group that is not open, or has waited for too long.
func (o *Outbox) sweep(ctx context.Context) {
	for pause.For(ctx, sweepEvery) {
		for part := range slices.Chunk(o.relay.sweep(o.ports.Gate.IsOpen), claimLimit) {
			o.ports.Claimed.GiveBack(ctx, part, nil)
		}
	}
}

// Idle says that nothing is being delivered.
func (o *Outbox) Idle() bool { return o.runner.Idle() }

// step delivers what has waited longest in a group, and says whether there may be more.
func (o *Outbox) step(ctx context.Context, name txn.Group) (more bool) {
	if !o.ports.Gate.IsOpen(name) {
		return false
	}
	if claims := o.relay.take(name, claimLimit); len(claims) > 0 {
		o.Send(context.WithoutCancel(ctx), claims)
		for _, c := range claims { // those that are left to the end of their leases: the others are not tracked any more
			o.ports.Rows.HandOver(c.CreatedAt)
		}
		return true
	}
	if !o.looks.take(name) {
		return false
	}
	claims, err := o.ports.Claims.ClaimOutbox(ctx, name.Broker, name.Topic, claimLimit)
	if err != nil {
		o.log.DebugContext(ctx, "claiming outbox rows", "error", err)
		return false
	}
	o.Send(context.WithoutCancel(ctx), claims)
	if len(claims) > 0 {
		o.looks.add(name)
	}
	return len(claims) > 0
}

// looks are the groups of which rows may wait in the database. It is safe for concurrent use. The zero value is ready.
type looks struct {
	mu     sync.Mutex
	groups map[txn.Group]struct{}
}

func (l *looks) add(name txn.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups == nil {
		l.groups = make(map[txn.Group]struct{})
	}
	l.groups[name] = struct{}{}
}

func (l *looks) take(name txn.Group) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.groups[name]
	delete(l.groups, name)
	return ok
}

// Send makes the messages of claimed rows without half messages visible, each once, and returns the ids of those that are
// known to be. Messages of one queue keep their order.
func (o *Outbox) Send(ctx context.Context, claims []txn.Claim) map[string]bool {
	queues := make(map[txn.Queue]*sending)
	var order []*sending
	for _, c := range claims {
		s := queues[c.Message.Queue]
		if s == nil {
			s = &sending{outbox: o, delivered: make(map[string]bool), stopped: make(map[string]bool)}
			queues[c.Message.Queue] = s
			order = append(order, s)
		}
		s.claims = append(s.claims, c)
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range order {
		g.Go(func() error { s.run(ctx); return nil })
	}
	_ = g.Wait()
	all := make(map[string]bool, len(claims))
	var sent []txn.Claim
	for _, s := range order {
		for id := range s.delivered {
			all[id] = true
		}
		sent = append(sent, s.sent...)
	}
	o.mark(ctx, sent)
	return all
}

// mark writes delivered marks before more is claimed: in a large backlog, the leases would end before marks that were
// written later.
func (o *Outbox) mark(ctx context.Context, sent []txn.Claim) {
	var ids []string
	now := time.Now()
	for _, c := range sent {
		if c.Tracked {
			o.ports.Rows.MarkDelivered(c.Message.TxID, now, false)
		} else {
			ids = append(ids, c.Message.TxID)
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := o.ports.Rows.MarkAll(ctx, ids, now); err != nil {
		o.log.DebugContext(ctx, "marking messages delivered; it is tried again", "error", err)
		for _, c := range sent {
			if !c.Tracked {
				o.ports.Rows.MarkDelivered(c.Message.TxID, now, c.Ordered)
			}
		}
	}
}
