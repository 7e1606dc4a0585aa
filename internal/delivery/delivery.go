// Package delivery finishes what requests could not: it answers check-backs, finds out outcomes that are not known, and makes
// committed messages visible that nobody has confirmed. It wires these peers:
//
//   - the resolver claims rows that have a half message, and checkbacks answer brokers about half messages;
//   - outbox delivers rows without a half message, and lines deliver ordered rows;
//   - claimed is what these have in common: the delivery of one claimed row;
//   - evidence knows what became of all that earlier holders of a row sent;
//   - groups runs the outbox's and the lines' work, and pauses topics on brokers that fail;
//   - attempts are those whose COMMIT was not answered.
//
// A row is always delivered in the same way. It is claimed with a lease, so that one process at a time acts for it. Then the
// claim waits for evidence that nothing an earlier holder sent can still be executed, and that the broker's index has what was
// executed. Then the broker is asked whether the message is visible. Only if it is not, the half message is ended; or the
// stored body is sent, when the broker no longer has the half message.
package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/delivery/claimed"
	"github.com/txsvc/txsvc/internal/delivery/evidence"
	"github.com/txsvc/txsvc/internal/delivery/groups"
	"github.com/txsvc/txsvc/internal/delivery/lines"
	"github.com/txsvc/txsvc/internal/delivery/outbox"
	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// Service is all deliveries of a process. It is safe for concurrent use.
type Service struct {
	timing     txn.Timing
	gone       Gone
	log        *slog.Logger
	evidence   *evidence.Evidence
	prober     *evidence.Prober
	gate       *groups.Gate
	resolver   *resolver
	outbox     *outbox.Outbox
	lines      *lines.Lines
	recounts   *claimed.Recounts
	attempts   *attempts
	checkbacks *checkbacks
	replicas   *replicas
	pending    *pending
}

// New returns a Service and registers its gauges. Run has to be running for anything but check-backs.
func New(ports Ports, timing txn.Timing, metrics *txn.Metrics, reg prometheus.Registerer, log *slog.Logger) *Service {
	s := &Service{timing: timing, gone: ports.Gone, log: log, evidence: evidence.New(timing)}
	var settles claimed.Evidence = s.evidence
	if ports.Evidence != nil {
		settles = ports.Evidence
	}
	deliverer, recounts := claimed.New(claimed.Ports{
		Leases: ports.Rows, Marks: ports.Rows, Broker: ports.Broker, Index: ports.Copies, Queues: ports.Queues, Evidence: settles, Wake: s.Wake,
	}, timing, metrics, log)
	s.recounts = recounts
	s.prober = evidence.NewProber(s.evidence, ports.Broker, ports.Probes, deliverer.Rollback, log)
	s.gate = groups.NewGate(s.evidence, ports.Broker, timing)
	claims := limit(ports.Outbox, ports.Lines, ports.Waiting)
	s.outbox = outbox.New(outbox.Ports{
		Claims: claims, Rows: ports.Rows, Broker: ports.Broker, Queues: ports.Queues, Gate: s.gate, Claimed: deliverer,
	}, timing, metrics, log)
	s.lines = lines.New(lines.Ports{Claims: claims, Marks: ports.Rows, Gate: s.gate, Claimed: deliverer, Outbox: s.outbox}, log)
	s.replicas = newReplicas(claims, ports.Waiting, s.outbox, s.lines, timing, log)
	s.resolver = &resolver{claims: ports.Halves, brokers: ports.Broker, evidence: s.evidence, claimed: deliverer, timing: timing, log: log}
	s.checkbacks = &checkbacks{decisions: ports.Decisions, claims: ports.Halves, evidence: s.evidence, claimed: deliverer, timing: timing, metrics: metrics, log: log}
	s.attempts = newAttempts(ports.Decisions, ports.Begun, deliverer, s.Wake, timing, metrics)
	s.pending = newPending(ports.Pending, ports.Broker, s.evidence, timing, log)
	reg.MustRegister(s.pending)
	return s
}

// Run works until ctx is done. Claims that are under way are finished, or their leases end by themselves.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	every := func(interval time.Duration, do func(context.Context)) {
		g.Go(func() error {
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
		})
	}
	run := func(loop func(context.Context)) {
		g.Go(func() error { loop(ctx); return nil })
	}
	every(s.timing.ProbeEvery, s.prober.Probe)
	every(s.timing.ProbeEvery, s.prober.FollowIndexes)
	every(s.timing.PollEvery, s.adopt)
	every(s.timing.PollEvery, s.resolver.deliverDue)
	every(s.timing.PollEvery, s.attempts.decideAll)
	every(s.timing.PollEvery, s.recounts.CountDue)
	run(s.replicas.seek)
	run(s.replicas.listen)
	run(s.replicas.announce)
	run(s.outbox.Run)
	run(s.lines.Run)
	run(s.pending.measureAll)
	return g.Wait()
}

// adopt makes rows due whose process is gone.
func (s *Service) adopt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.CallWithin)
	defer cancel()
	adopted, err := s.gone.Adopt(ctx)
	switch {
	case err != nil:
		s.log.DebugContext(ctx, "looking for what processes left behind that are gone", "error", err)
	case adopted > 0:
		s.log.InfoContext(ctx, "messages of a process that is gone are not known to be visible, and are looked for", "messages", adopted)
	}
}

// Checkback answers the broker's question about one copy of a half message. Leaving it unanswered is an answer, too: the
// broker asks again.
func (s *Service) Checkback(ctx context.Context, m txn.Message, h txn.Half) {
	s.checkbacks.answer(ctx, m, h)
}

// Add takes over an attempt whose outcome is not known; see txn.Undecided.
func (s *Service) Add(a *txn.Attempt) { s.attempts.add(a) }

// Find returns an attempt with the id whose outcome is being found out, or nil.
func (s *Service) Find(id string) *txn.Attempt { return s.attempts.find(id) }

// Alive is false for a broker that is known not to answer; see txn.Deliveries.
func (s *Service) Alive(broker string) bool { return s.evidence.Answering(broker) }

// Takes says whether Relay can be expected to take rows of the place now.
func (s *Service) Takes(w txn.Waiting) bool {
	return s.outbox.Takes(txn.Group{Broker: w.Broker, Topic: w.Topic})
}

// Relay delivers a row from memory that this process has just committed; see txn.Deliveries.
func (s *Service) Relay(c txn.Claim) bool { return s.outbox.Relay(c) }

// Wake starts the delivery of a committed row soon; see txn.Deliveries.
func (s *Service) Wake(w txn.Waiting) {
	if w.Ordered {
		s.lines.Wake(w.Topic, w.ShardKey)
	} else {
		s.outbox.Wake(txn.Group{Broker: w.Broker, Topic: w.Topic})
	}
	pause.Wake(s.replicas.behind)
}

// WakeAll is Wake for all replicas; see txn.Deliveries.
func (s *Service) WakeAll(w txn.Waiting) {
	s.gate.Reopen(txn.Group{Broker: w.Broker, Topic: w.Topic})
	s.Wake(w)
	pause.Wake(s.replicas.asked)
}
