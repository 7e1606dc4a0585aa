package txn

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// This file is the flow of a request, from top to bottom: validate, replay, turn, route, half, local, finish. Each stage has
// the time that the earlier ones and Timing leave it; see Budget.

// Submit runs one transaction and returns when its outcome is known, or known to be unknown (StateUnknown). Once a half
// message is sent, ctx's cancellation is ignored, because a client that hangs up must not cancel a COMMIT. Errors are
// *Error.
func (s *Service) Submit(ctx context.Context, r Request) (*Transaction, error) {
	// Validate: all that needs neither broker nor database.
	known, ok := s.kinds[r.Kind]
	if !ok {
		return nil, Errorf(CodeUnknownKind, "no kind has the name %q", r.Kind)
	}
	kind, said := known.kind, r // without defaults, which may change with the configuration
	if r.Tag == "" {
		r.Tag = kind.Tag
	}
	if err := r.validate(kind); err != nil {
		return nil, err
	}
	r.SelectorArg, r.LocalArg = presentJSON(r.SelectorArg), presentJSON(r.LocalArg)
	request := &submission{kind: kind, Request: r, said: &said, fingerprint: said.fingerprint(kind), metrics: known.metrics}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return nil, &Error{Code: CodeOverloaded, Detail: "more transactions are in flight than this service takes on", RetryAfter: RetrySoon}
	}
	s.metrics.InFlight.Inc()
	defer s.metrics.InFlight.Dec()
	start := time.Now()
	request.by = known.budget.from(start)
	t, err := s.submitOnce(ctx, request)
	observe(request.metrics.total, start)
	if counter, ok := request.metrics.outcomes[outcomeLabel(t, err)]; ok {
		counter.Inc()
	}
	return t, err
}

// submission is a valid request on its way through the stages, which have to be over at certain times.
type submission struct {
	Request
	kind        *Kind
	said        *Request // as the client sent it, without defaults
	fingerprint Fingerprint
	by          stages
	metrics     *kindMetrics
}

// submitOnce lets one request per id through at a time. Those that come meanwhile follow it, and share its answer.
func (s *Service) submitOnce(ctx context.Context, r *submission) (*Transaction, error) {
	if r.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, &Error{Code: CodeInternal, Detail: "no id could be generated", Cause: err}
		}
		r.ID = id.String()
		return s.attempt(ctx, r)
	}
	flight, leads := s.flights.join(r.ID, r.by.end)
	if !leads {
		return s.follow(ctx, flight, r)
	}
	var t *Transaction
	var err error
	defer func() { s.flights.land(r.ID, flight, t, err) }()
	flight.fingerprint = r.fingerprint
	if t, err = s.replay(ctx, r); t == nil && err == nil {
		t, err = s.attempt(ctx, r)
	}
	return t, err
}

// replay returns the answer of an earlier request with the id, or nil when no earlier one was decided, or may be. Where one
// may be, its outcome is waited for a moment.
func (s *Service) replay(ctx context.Context, r *submission) (*Transaction, error) {
	ctx, cancel := context.WithDeadline(ctx, r.by.replay)
	defer cancel()
	var waited <-chan time.Time
	for {
		undecided := s.deliveries.Find(r.ID) // before the row is read: it is forgotten only when the row is there
		t, err := s.store.Find(ctx, r.ID)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, Undone(noAnswer(err), nothingChanged)
		case err == nil && !t.Abandoned:
			s.explain(t)
			return answerAgain(t, r.said.fingerprintFor(r.kind, t))
		case undecided == nil:
			return nil, nil
		}
		if waited == nil {
			waited = time.After(s.config.Timing.UndecidedWithin)
		}
		select {
		case <-undecided.decided:
			continue
		case <-waited:
		case <-ctx.Done():
		}
		t = unknown(undecided)
		t.Fingerprint = undecided.Fingerprint
		return answerAgain(t, r.fingerprint)
	}
}

// attempt is one try at a request whose id has no answer yet. What it leaves behind when the process dies, after any of its
// steps, a check-back or the resolver decides off the row: see the diagram in doc.go.
func (s *Service) attempt(ctx context.Context, r *submission) (*Transaction, error) {
	// Turn: one request of an ordered shard key works at a time.
	if r.kind.Ordered {
		key := turnKey{r.kind.Topic, r.ShardKey}
		if err := s.turns.take(ctx, key, min(r.kind.Timeout, time.Until(r.by.turn))); err != nil {
			return nil, err
		}
		defer s.turns.pass(key)
	}

	// Route: the queue is chosen before anything is sent.
	start := time.Now()
	a := &Attempt{Kind: r.kind, Request: r.Request, Fingerprint: r.fingerprint, Via: ViaHalf, CreatedAt: s.store.Begin(), RunBy: r.by.run}
	ran := false
	defer func() {
		if !ran {
			s.store.Settle(a.CreatedAt)
		}
	}()
	route, writable, err := s.route(ctx, r)
	if err != nil {
		return nil, err
	}
	routed := observe(r.metrics.route, start)

	// Half: from here on a client that hangs up ends nothing, because a half message that was sent cannot be taken
	// back.
	ctx = context.WithoutCancel(ctx)
	a.Route = route
	if err := s.prepare(ctx, a, writable, r.by.half); err != nil {
		return nil, err
	}
	stored := observe(r.metrics.half, routed)
	s.reached("half-sent")

	// Local: the row is written with the business change, or neither is.
	ran = true
	outcome := s.store.Run(ctx, a)
	local := observe(r.metrics.local, stored)

	// Finish: the half message is ended and the client answered, both by the row.
	t, err := s.finish(ctx, a, outcome, r.by.end)
	observe(r.metrics.end, local)
	return t, err
}

// finish acts on the outcome of the local transaction. It is the one place that decides what the half message of a request
// is told: commit only off a committed row, rollback only when the row can never come, and nothing as long as that is open.
func (s *Service) finish(ctx context.Context, a *Attempt, o Outcome, by time.Time) (t *Transaction, err error) {
	switch o.Kind {
	case OutcomeCommitted:
		s.reached("committed")
		t = o.Transaction
		switch s.deliver(ctx, a, o, by) {
		case left:
			s.store.HandOver(a.CreatedAt)
		case relayed:
		case confirmed:
			t.Delivery, t.DeliveredAt = DeliveryDelivered, time.Now().UTC().Truncate(time.Microsecond) // as the row keeps it
			s.store.MarkDelivered(t.ID, t.DeliveredAt, a.Kind.Ordered)
			s.store.Settle(a.CreatedAt)
			s.metrics.Delivered("half", t.Topic, t.Route.Queue)
		}
	case OutcomeRejected:
		s.abort(ctx, a, by)
		err = rejected(o.Transaction)
	case OutcomeTaken:
		s.abort(ctx, a, by)
		t, err = answerAgain(o.Transaction, a.Fingerprint)
	case OutcomeUnknown:
		s.log.WarnContext(ctx, "outcome of COMMIT unknown", "id", a.Request.ID, "kind", a.Kind.Name, "error", o.Err)
		t, a.decided = unknown(a), make(chan struct{})
		s.deliveries.Add(a)
	default:
		s.abort(ctx, a, by)
		err = o.Err
	}
	if t != nil {
		s.explain(t)
	}
	return t, err
}

// delivering is what became of the message of a committed transaction in its request.
type delivering int

const (
	left      delivering = iota // to the resolver, which begins when the lease ends, or is given back
	relayed                     // to the outbox of this process
	confirmed                   // the broker says that the message is visible
)

// deliver ends the half message of a committed transaction, or has its message sent.
func (s *Service) deliver(ctx context.Context, a *Attempt, o Outcome, by time.Time) delivering {
	t, lease := o.Transaction, o.Lease
	switch {
	case t.Delivery == DeliveryDelivered:
		return left // by somebody else, who has noted it
	case a.Via == ViaOutbox:
		return s.relay(ctx, a, o, by)
	case a.Kind.Ordered && !o.Head && !s.awaitHead(ctx, t, by):
		s.release(ctx, t, lease, by)
		return left
	}
	if time.Now().After(lease.WriteBefore) {
		var held bool
		if lease, held = s.renew(ctx, lease, by); !held {
			return left
		}
	}
	err := s.commitHalf(ctx, a, lease, by)
	s.reached("end-answered")
	if err == nil {
		return confirmed
	}
	// When the reply is lost, the broker may still execute the END_TRANSACTION. So the row stays pending, and the resolver sends
	// another one only after the lease has ended and evidence shows that this one had no effect; see package delivery/claimed.
	s.metrics.Deliveries.WithLabelValues("half", "unconfirmed").Inc()
	s.log.WarnContext(ctx, "END_TRANSACTION not confirmed, left to the resolver", "id", t.ID, "kind", t.Kind, "error", err)
	if IsUnsent(err) { // it is not under way: the resolver need not wait
		s.release(ctx, t, lease, by)
	}
	return left
}

// relay has the message of a committed transaction sent that has no half message: by this process, from memory, or by who
// claims its row.
func (s *Service) relay(ctx context.Context, a *Attempt, o Outcome, by time.Time) delivering {
	t := o.Transaction
	switch {
	case !o.Tracked:
		s.deliveries.Wake(t.Waiting())
	case s.deliveries.Relay(claimOf(a, o)):
		return relayed
	default:
		s.release(ctx, t, o.Lease, by)
	}
	return left
}

// claimOf is the claim that an attempt has on the row that it has just committed.
func claimOf(a *Attempt, o Outcome) Claim {
	m := a.Message
	if a.Kind.Body == BodyResult {
		m.Body = o.Transaction.Result
		if m.Body == nil {
			m.Body = []byte("null")
		}
	}
	return Claim{
		Lease: o.Lease, Half: a.Half, Message: m, Outbox: true, Tracked: true, First: NoHalf, CreatedAt: o.Transaction.CreatedAt, Attempts: 1,
	}
}
