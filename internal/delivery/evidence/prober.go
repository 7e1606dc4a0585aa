package evidence

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Broker answers probes.
type Broker interface {
	// Brokers returns the names of the masters that are known.
	Brokers() []string
	// Probe returns when the broker has answered a request that was sent after the call began.
	Probe(ctx context.Context, broker string) error
}

// Index stores index probes and shows how far they have come.
type Index interface {
	// NewUniqKey returns a fresh UNIQ_KEY.
	NewUniqKey() string
	// SendHalf stores a half message; see txn.Broker.
	SendHalf(ctx context.Context, m txn.Message) (txn.Half, error)
	// Reach says how far what the broker writes behind its log has come with a half message, also one that was ended. Errors
	// have txn.ReasonNotTold when the broker answered and did not tell.
	Reach(ctx context.Context, h txn.Half) (txn.Reach, error)
}

// Prober gathers evidence. Probe and FollowIndexes are to be called every Timing.ProbeEvery; each may run beside the other.
type Prober struct {
	evidence *Evidence
	broker   Broker
	index    Index
	rollback func(ctx context.Context, h txn.Half)
	log      *slog.Logger
}

// NewProber returns a Prober that fills the evidence. It calls rollback for each index probe.
func NewProber(e *Evidence, broker Broker, index Index, rollback func(context.Context, txn.Half), log *slog.Logger) *Prober {
	return &Prober{evidence: e, broker: broker, index: index, rollback: rollback, log: log}
}

// Probe asks all brokers for a sign of life.
func (p *Prober) Probe(ctx context.Context) {
	p.eachBroker(ctx, p.evidence.timing.ProbeEvery, func(ctx context.Context, broker string) {
		p.evidence.asking(broker)
		sent := time.Now()
		if err := p.broker.Probe(ctx, broker); err == nil {
			p.evidence.add(broker, sent, time.Now())
		}
	})
}

// eachBroker calls do for all brokers at once, because a silent one must not hold up the others, and returns when all calls
// have returned. The limit bounds them.
func (p *Prober) eachBroker(ctx context.Context, limit time.Duration, do func(ctx context.Context, broker string)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all sync.WaitGroup
	for _, broker := range p.broker.Brokers() {
		all.Go(func() { do(ctx, broker) })
	}
	all.Wait()
}

// FollowIndexes looks for index probes, and sends another one to each broker about which somebody asks.
func (p *Prober) FollowIndexes(ctx context.Context) {
	p.eachBroker(ctx, p.evidence.timing.CallWithin, func(ctx context.Context, broker string) {
		err := p.followIndex(ctx, broker)
		reason := txn.ReasonOf(err)
		switch {
		case reason == txn.ReasonNoQueue, reason == txn.ReasonNotTold:
			if p.evidence.setSource(broker, byTime) {
				p.log.WarnContext(ctx, "it cannot be found out how far the broker's index is: what may have been sent waits longer",
					"broker", broker, "waits", p.evidence.timing.IndexBlind.String(), "error", err)
			}
		case err != nil:
			p.log.DebugContext(ctx, "following the broker's index", "broker", broker, "error", err)
		case p.evidence.indexIsSilent(broker) && p.evidence.setSource(broker, byQueue):
			p.log.WarnContext(ctx, "the broker's index does not know what is in its queues: they are read instead", "broker", broker)
		}
	})
}

func (p *Prober) followIndex(ctx context.Context, broker string) error {
	if err := p.findIndexProbes(ctx, broker); err != nil {
		return err
	}
	topic, ok := p.evidence.wantsIndexProbe(broker)
	if !ok {
		return nil
	}
	before := time.Now()
	half, err := p.index.SendHalf(ctx, txn.Message{
		Topic: topic, Queue: txn.Queue{Broker: broker}, Kind: txn.ProbeKind, UniqKey: p.index.NewUniqKey(), Body: []byte("{}"),
	})
	if err != nil {
		return err
	}
	p.evidence.addIndexProbe(broker, indexProbe{before: before, half: half})
	p.rollback(ctx, half)
	return p.findIndexProbes(ctx, broker)
}

// findIndexProbes looks how far the open index probes have come.
func (p *Prober) findIndexProbes(ctx context.Context, broker string) error {
	for _, probe := range p.evidence.openIndexProbes(broker) {
		reach, err := p.index.Reach(ctx, probe.half)
		if err != nil {
			return err
		}
		switch reach {
		case txn.ReachIndex:
			p.evidence.foundIndexProbe(broker, probe)
		case txn.ReachQueue:
			p.evidence.queuedIndexProbe(broker, probe)
		case txn.ReachNothing:
		}
	}
	return nil
}
