package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	pollEvery    = 250 * time.Millisecond
	claimLimit   = 500
	parallel     = 32 // claims worked on at once
	callTimeout  = 3 * time.Second
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// clockSkew is how far the clocks of broker and database may be apart when the index is asked by time.
	clockSkew   = 10 * time.Minute
	gaugesEvery = 5 * time.Second
	warnEvery   = 30 * time.Second
)

// Resolver finishes deliveries. It is safe for concurrent use.
type Resolver struct {
	store     Store
	broker    Broker
	queues    Queues
	timing    txn.Timing
	metrics   *txn.Metrics
	log       *slog.Logger
	evidence  *evidence
	undecided undecided
	recounts  recounts
	foreign   foreign
	relay     *relay
	measured  *measured
	warned    time.Time // of the loop that delivers alone
}

// New returns a Resolver and registers its gauges. Run has to be running for anything but check-backs.
func New(store Store, broker Broker, queues Queues, timing txn.Timing, metrics *txn.Metrics, reg prometheus.Registerer, log *slog.Logger) *Resolver {
	r := &Resolver{
		store: store, broker: broker, queues: queues, timing: timing, metrics: metrics, log: log, evidence: newEvidence(timing),
		undecided: undecided{attempts: make(map[string][]*txn.Attempt)},
		measured:  newMeasured(),
	}
	reg.MustRegister(r.measured)
	r.relay = newRelay(r)
	return r
}

// Run works until ctx is done. Claims that are under way are finished, or their leases end by themselves.
func (r *Resolver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return every(ctx, probeEvery, r.probeAll) })
	g.Go(func() error { return every(ctx, probeEvery, r.followIndexes) })
	g.Go(func() error { return every(ctx, pollEvery, r.deliverDue) })
	g.Go(func() error { return every(ctx, pollEvery, r.decideAll) })
	g.Go(func() error { return every(ctx, pollEvery, r.recountDue) })
	g.Go(func() error { r.measureAll(ctx); return nil })
	g.Go(func() error { r.relay.run(ctx); return nil })
	g.Go(func() error { r.relay.announce(ctx); return nil })
	g.Go(func() error { r.store.Listen(ctx, r.relay.look); return nil })
	return g.Wait()
}

func every(ctx context.Context, interval time.Duration, do func(context.Context)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// probeAll asks every broker for a sign of life, each on its own so that a silent one holds up no other.
func (r *Resolver) probeAll(ctx context.Context) {
	r.eachBroker(ctx, probeEvery, func(ctx context.Context, broker string) {
		sent := time.Now()
		r.evidence.ask(broker, sent)
		if err := r.broker.Probe(ctx, broker); err == nil {
			r.evidence.add(broker, sent, time.Now())
		}
	})
}

// eachBroker calls do for all brokers at once, and returns when all are done; they have so long.
func (r *Resolver) eachBroker(ctx context.Context, limit time.Duration, do func(ctx context.Context, broker string)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all sync.WaitGroup
	for _, broker := range r.broker.Brokers() {
		all.Go(func() { do(ctx, broker) })
	}
	all.Wait()
}

// deliverDue claims and delivers until nothing is due.
func (r *Resolver) deliverDue(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		brokers := r.evidence.ready(r.evidence.alive(r.broker.Brokers(), now), now)
		if len(brokers) == 0 {
			return
		}
		claims, err := r.claimDue(ctx, brokers)
		if err != nil {
			r.warnSometimes(ctx, err)
			return
		}
		var g errgroup.Group
		g.SetLimit(parallel)
		for _, c := range claims {
			g.Go(func() error {
				r.deliver(context.WithoutCancel(ctx), c, "resolver")
				return nil
			})
		}
		_ = g.Wait()
		if len(claims) < claimLimit {
			return
		}
	}
}

// warnSometimes tells of a database that is away or has no tables, not four times a second.
func (r *Resolver) warnSometimes(ctx context.Context, err error) {
	if time.Since(r.warned) < warnEvery {
		return
	}
	r.warned = time.Now()
	r.log.WarnContext(ctx, "pending deliveries cannot be looked for; it is tried again all the time", "error", err)
}

func (r *Resolver) claimDue(ctx context.Context, brokers []string) ([]txn.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.store.ClaimDue(ctx, brokers, claimLimit)
}

// deliver makes the message of a claimed row visible, once, and says whether it is known to be.
func (r *Resolver) deliver(ctx context.Context, c txn.Claim, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	settled, indexed := r.settled(ctx, c)
	if !settled || r.reroute(ctx, c, path) {
		return false
	}
	if seen := r.seen(ctx, c, path, indexed); seen != absent {
		return seen == visible
	}
	err := r.broker.End(ctx, c.Half, txn.DecisionCommit, c.Lease.WriteBefore)
	if errors.Is(err, txn.ErrHalfGone) {
		r.log.WarnContext(ctx, "the broker no longer has the half message, sending the stored body", "id", c.Message.TxID, "error", err)
		err = r.broker.Send(ctx, c.Message, c.Lease.WriteBefore)
	}
	if err != nil {
		r.failed(ctx, c, path, err)
		return false
	}
	r.store.MarkDelivered(c.Message.TxID, time.Now(), c.Ordered)
	r.recounts.add(c, time.Now())
	r.metrics.Delivered(path, c.Message.Topic, c.Message.Queue)
	return true
}

// settled says whether what earlier holders sent is executed and can be found, or is dropped; if not, the row is given back.
// indexed says that the index tells; otherwise the queue has to be read.
func (r *Resolver) settled(ctx context.Context, c txn.Claim) (settled, indexed bool) {
	wait, indexed := r.evidence.settled(c.Half.Broker, c.Message.Topic, c.FreeSince.Add(-r.timing.Quiet()), time.Now())
	if wait > 0 {
		r.putBack(ctx, c, wait, "waiting until what was sent before is executed by the broker and in its index, or dropped")
	}
	return wait == 0, indexed
}

// state is what is known of a message before it is sent.
type state int

const (
	absent state = iota
	visible
	unclear // and the row is given back
)

// seen looks for a message that an earlier holder may have made visible.
func (r *Resolver) seen(ctx context.Context, c txn.Claim, path string, indexed bool) state {
	copies, err := r.visible(ctx, c, indexed)
	switch {
	case err != nil:
		r.failed(ctx, c, path, err)
		return unclear
	case copies > 0:
		r.found(ctx, c, path, copies)
		return visible
	default:
		return absent
	}
}

// visible counts the copies of a claim's message.
func (r *Resolver) visible(ctx context.Context, c txn.Claim, indexed bool) (int, error) {
	return r.broker.Visible(ctx, c.Message, c.First, c.CreatedAt.Add(-clockSkew), indexed)
}

func (r *Resolver) found(ctx context.Context, c txn.Claim, path string, copies int) {
	r.suspect(ctx, c, copies)
	r.store.MarkDelivered(c.Message.TxID, time.Now(), c.Ordered)
	r.metrics.Deliveries.WithLabelValues(path, "found").Inc()
	r.metrics.QueueMessage(c.Message.Topic, c.Message.Queue)
}

// failed keeps the lease when the broker may still execute what was sent, and gives the row back when it cannot.
func (r *Resolver) failed(ctx context.Context, c txn.Claim, path string, err error) {
	result := "failed"
	if errors.Is(err, txn.ErrReplyMissing) {
		result = "unconfirmed"
	}
	r.metrics.Deliveries.WithLabelValues(path, result).Inc()
	r.log.WarnContext(ctx, "delivery not confirmed; it is tried again", "id", c.Message.TxID, "attempts", c.Attempts, "error", err)
	if result == "failed" {
		r.putBack(ctx, c, backoff(c.Attempts), reason(err))
	}
}

// reason is what the row says of an error, and with it GET: nothing that is not for everybody.
func reason(err error) string {
	if e, ok := errors.AsType[*txn.Error](err); ok {
		return e.Detail
	}
	return txn.Why(err)
}

func (r *Resolver) putBack(ctx context.Context, c txn.Claim, wait time.Duration, reason string) {
	if err := r.store.Defer(context.WithoutCancel(ctx), c.Lease, wait, reason); err != nil {
		r.log.WarnContext(ctx, "giving a claim back; its lease ends by itself", "id", c.Message.TxID, "error", err)
	}
}

func backoff(attempts int) time.Duration {
	return min(firstBackoff<<min(max(attempts-1, 0), 10), maxBackoff)
}
