package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/txsvc/txsvc/internal/failpoint"
)

// Config bounds the flow.
type Config struct {
	MaxInFlight  int           // transactions worked on at once; more are answered "overloaded"
	HalfAttempts int           // half messages tried per request, each with a new UNIQ_KEY
	HalfTimeout  time.Duration // for one half message to be stored
	EndTimeout   time.Duration // to wait for the reply to END_TRANSACTION before the resolver takes over
	AbortTimeout time.Duration // to wait for the reply to a rollback; the broker asks back about those it missed
	TurnTimeout  time.Duration // to wait for earlier messages of an ordered one's line before the resolver takes over
}

// AnswerTimeout is how long the broker's answer to a message is waited for. A broker whose slave does not confirm in time says
// so after 3 s (slaveTimeout), and that answer should be there before nobody waits for it any more.
const AnswerTimeout = 3500 * time.Millisecond

// DefaultConfig returns the limits used when nothing is configured.
func DefaultConfig() Config {
	return Config{
		MaxInFlight:  1024,
		HalfAttempts: 2,
		HalfTimeout:  AnswerTimeout,
		EndTimeout:   2 * time.Second,
		AbortTimeout: time.Second,
		TurnTimeout:  500 * time.Millisecond,
	}
}

// Service runs transactions. It is safe for concurrent use.
type Service struct {
	config     Config
	kinds      map[string]*Kind
	routing    Routing
	broker     Broker
	store      Store
	deliveries Deliveries
	metrics    *Metrics
	log        *slog.Logger
	slots      chan struct{}
	flights    flights
	lines      lines
	fellBack   atomic.Int64 // when it was told last that half messages cannot be stored, in seconds of Unix time
}

// NewService returns a Service for the given kinds.
func NewService(config Config, kinds []*Kind, routing Routing, broker Broker, store Store, deliveries Deliveries, metrics *Metrics, log *slog.Logger) *Service {
	s := &Service{
		config: config, kinds: make(map[string]*Kind, len(kinds)),
		routing: routing, broker: broker, store: store, deliveries: deliveries, metrics: metrics, log: log,
		slots: make(chan struct{}, config.MaxInFlight),
	}
	for _, kind := range kinds {
		s.kinds[kind.Name] = kind
	}
	metrics.expect(kinds)
	metrics.InFlightLimit.Set(float64(config.MaxInFlight))
	return s
}

// Get returns the transaction with the id. While its outcome is being found out, the answer is StateUnknown; errors are
// *Error.
func (s *Service) Get(ctx context.Context, id string) (*Transaction, error) {
	undecided := s.deliveries.Find(id) // before the row is read: it is forgotten only when the row is there
	t, err := s.store.Find(ctx, id)
	switch {
	case err == nil && (!t.Abandoned || undecided == nil):
		s.explain(t)
		return t, nil
	case undecided != nil:
		return unknown(undecided), nil
	case errors.Is(err, ErrNotFound):
		return nil, Errorf(CodeNotFound, "no transaction has this id")
	default:
		return nil, noAnswer(err)
	}
}

// explain says what a pending message waits for, where the row does not yet: nobody tries a broker that does not answer.
func (s *Service) explain(t *Transaction) {
	if t.Delivery == DeliveryPending && t.Trouble == "" && !s.deliveries.Alive(t.Route.Queue.Broker) {
		t.Trouble = Silent(t.Route.Queue.Broker)
	}
}

// Silent is what keeps the messages waiting that are for a broker that does not answer.
func Silent(broker string) string { return "broker " + broker + " does not answer" }

// Submit runs one transaction and returns when its outcome is known, or known to be unknown (StateUnknown). Once the
// half message is stored, ctx's cancellation is ignored: a client that hangs up must not cancel a COMMIT. Errors are
// *Error.
func (s *Service) Submit(ctx context.Context, r Request) (*Transaction, error) {
	kind, ok := s.kinds[r.Kind]
	if !ok {
		return nil, Errorf(CodeUnknownKind, "no kind has the name %q", r.Kind)
	}
	said := r // without defaults, which may change with the configuration
	if r.Tag == "" {
		r.Tag = kind.Tag
	}
	if err := r.validate(kind); err != nil {
		return nil, err
	}
	r.SelectorArg, r.LocalArg = presentJSON(r.SelectorArg), presentJSON(r.LocalArg)
	fingerprint := said.fingerprint(kind)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return nil, &Error{Code: CodeOverloaded, Detail: "more transactions are in flight than this service takes on", RetryAfter: time.Second}
	}
	s.metrics.InFlight.Inc()
	defer s.metrics.InFlight.Dec()
	start := time.Now()
	t, err := s.submitOnce(ctx, kind, r, fingerprint)
	s.metrics.observe(kind.Name, "total", start)
	if outcome := outcomeLabel(t, err); outcome != "" {
		s.metrics.Transactions.WithLabelValues(kind.Name, outcome).Inc()
	}
	return t, err
}

// outcomeLabel is empty for what is only the client's mistake: no transaction was tried.
func outcomeLabel(t *Transaction, err error) string {
	if err != nil {
		switch code := CodeOf(err); {
		case decided(err):
			return "rejected"
		case code == CodeInvalidRequest, code == CodePayloadTooLarge, code == CodeIdempotencyMismatch:
			return ""
		default:
			return "failed"
		}
	}
	if t.Replayed {
		return "replayed"
	}
	return string(t.State)
}

// submitOnce lets one request per id through at a time; those that come meanwhile share its answer.
func (s *Service) submitOnce(ctx context.Context, kind *Kind, r Request, fingerprint Fingerprint) (*Transaction, error) {
	if r.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, &Error{Code: CodeInternal, Detail: "no id could be generated", Cause: err}
		}
		r.ID = id.String()
		return s.attempt(ctx, kind, r, fingerprint)
	}
	flight, leads := s.flights.join(r.ID)
	if !leads {
		return s.follow(ctx, flight, r.ID, fingerprint, kind)
	}
	var t *Transaction
	var err error
	defer func() { s.flights.land(r.ID, flight, t, err) }()
	flight.fingerprint = fingerprint
	if t, err = s.replay(ctx, r.ID, fingerprint); t == nil && err == nil {
		t, err = s.attempt(ctx, kind, r, fingerprint)
	}
	return t, err
}

// Redeliver asks for one more attempt at a message that was given up. It is safe to repeat, and returns the transaction
// as it is now; errors are *Error.
func (s *Service) Redeliver(ctx context.Context, id string) (*Transaction, error) {
	t, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case t.State == StateUnknown:
		return nil, Errorf(CodeConflict, "it is not known yet whether the transaction is committed")
	case t.Abandoned || t.State != StateCommitted:
		return nil, Errorf(CodeConflict, "the transaction is not committed: it has no message to deliver")
	case t.Delivery != DeliveryPending:
		return t, nil
	}
	if t, err = s.store.Redeliver(ctx, id); err != nil {
		return nil, noAnswer(err)
	}
	s.deliveries.WakeAll(t.Waiting())
	return t, nil
}

// follow waits for the request that is being worked on with the same id.
func (s *Service) follow(ctx context.Context, f *flight, id string, fingerprint Fingerprint, kind *Kind) (*Transaction, error) {
	limit := kind.Timeout + s.config.HalfTimeout
	if kind.Ordered { // it may have to wait for others first
		limit += kind.Timeout
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, Errorf(CodeConflict, "the request was cancelled while the same id was being worked on")
	case <-timeout.C:
		return nil, Errorf(CodeConflict, "a request with the same id is still running")
	}
	if f.transaction == nil && f.err == nil {
		return nil, Errorf(CodeInternal, "the request with the same id ended without an answer")
	}
	if !f.fingerprint.same(fingerprint) {
		if f.transaction == nil && !decided(f.err) {
			return nil, Errorf(CodeConflict, "a different request with the same id was being worked on and failed; try again")
		}
		return nil, mismatch(id)
	}
	if f.err != nil {
		return nil, again(f.err)
	}
	t := *f.transaction
	t.Replayed = true
	return &t, nil
}

func mismatch(id string) *Error {
	return &Error{Code: CodeIdempotencyMismatch, Detail: "this id was used for a request with another content", TransactionID: id}
}

// replay returns the answer of an earlier request with the id, or nil when there was none that was decided, or that may be.
// The outcome of one that may be is waited for a moment.
func (s *Service) replay(ctx context.Context, id string, fingerprint Fingerprint) (*Transaction, error) {
	for begin := time.Now(); ; {
		undecided := s.deliveries.Find(id) // before the row is read: it is forgotten only when the row is there
		t, err := s.store.Find(ctx, id)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, beforeAnything(noAnswer(err))
		case err == nil && !t.Abandoned:
			s.explain(t)
			return answerAgain(t, fingerprint)
		case undecided == nil:
			return nil, nil
		case time.Since(begin) > undecidedWait || ctx.Err() != nil:
			t = unknown(undecided)
			t.Fingerprint = undecided.Fingerprint
			return answerAgain(t, fingerprint)
		}
		time.Sleep(undecidedLook)
	}
}

// How long a repeated request waits for the outcome of the one before, and how often it looks.
const (
	undecidedWait = 2 * time.Second
	undecidedLook = 50 * time.Millisecond
)

func answerAgain(t *Transaction, fingerprint Fingerprint) (*Transaction, error) {
	same := t.Fingerprint.same(fingerprint)
	if !same && t.State == StateUnknown {
		return nil, Errorf(CodeConflict, "it is not known yet whether another request with this id is committed; try again")
	}
	if !same {
		return nil, mismatch(t.ID)
	}
	if t.Rejection != nil {
		return nil, again(rejected(t))
	}
	t.Replayed = true
	return t, nil
}

// again returns the answer of another request. Only a final one is repeated.
func again(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Final {
		return err
	}
	repeated := *e
	repeated.Replayed = true
	return &repeated
}

func rejected(t *Transaction) *Error {
	return &Error{Code: CodeRejected, Detail: t.Rejection.Message, Rejection: t.Rejection, Final: true, TransactionID: t.ID}
}

// attempt routes, stores a half message, runs the local transaction and ends the half message.
func (s *Service) attempt(ctx context.Context, kind *Kind, r Request, fingerprint Fingerprint) (*Transaction, error) {
	if kind.Ordered {
		key := lineKey{kind.Topic, r.ShardKey}
		if err := s.lines.enter(ctx, key, kind.Timeout); err != nil {
			return nil, err
		}
		defer s.lines.leave(key)
	}
	start := time.Now()
	route, writable, err := s.routeOrKnown(ctx, kind, r)
	if err != nil {
		return nil, err
	}
	half := s.metrics.observe(kind.Name, "route", start)
	a := &Attempt{Kind: kind, Request: r, Fingerprint: fingerprint, Route: route, CreatedAt: start}
	ctx = context.WithoutCancel(ctx)
	if err := s.prepare(ctx, a, writable); err != nil {
		return nil, err
	}
	local := s.metrics.observe(kind.Name, "half", half)
	failpoint.Hit("half-sent")
	outcome := s.store.Run(ctx, a)
	end := s.metrics.observe(kind.Name, "local", local)
	t, err := s.finish(ctx, a, outcome)
	if t != nil {
		s.explain(t)
	}
	s.metrics.observe(kind.Name, "end", end)
	return t, err
}

// finish acts on the outcome of the local transaction: the one place that decides what the half message is told.
func (s *Service) finish(ctx context.Context, a *Attempt, o Outcome) (*Transaction, error) {
	switch o.Kind {
	case OutcomeCommitted:
		failpoint.Hit("committed")
		return s.deliver(ctx, a, o), nil
	case OutcomeRejected:
		s.abort(ctx, a)
		return nil, rejected(o.Transaction)
	case OutcomeTaken:
		s.abort(ctx, a)
		return answerAgain(o.Transaction, a.Fingerprint)
	case OutcomeUnknown:
		s.log.WarnContext(ctx, "outcome of COMMIT unknown", "id", a.Request.ID, "kind", a.Kind.Name, "error", o.Err)
		s.deliveries.Add(a)
		return unknown(a), nil
	default:
		s.abort(ctx, a)
		return nil, o.Err
	}
}

// deliver ends the half message of a committed transaction, when it is its turn. Whatever goes wrong here is finished by
// the resolver when the lease ends.
func (s *Service) deliver(ctx context.Context, a *Attempt, o Outcome) *Transaction {
	t, lease := o.Transaction, o.Lease
	if t.Delivery == DeliveryDelivered {
		return t
	}
	if a.Outbox {
		s.deliveries.Wake(t.Waiting())
		return t
	}
	if a.Kind.Ordered && !o.Head && !s.awaitTurn(ctx, t) {
		s.release(ctx, t, lease)
		return t
	}
	if time.Now().After(lease.WriteBefore) {
		renewed, held, err := s.store.Renew(ctx, lease)
		if err != nil || !held {
			return t
		}
		lease = renewed
	}
	endCtx, cancel := context.WithTimeout(ctx, s.config.EndTimeout)
	defer cancel()
	err := s.endInQueue(endCtx, a, lease)
	failpoint.Hit("end-answered")
	if err != nil {
		s.metrics.Deliveries.WithLabelValues("half", "unconfirmed").Inc()
		s.log.WarnContext(ctx, "END_TRANSACTION not confirmed, left to the resolver", "id", t.ID, "kind", t.Kind, "error", err)
		if errors.Is(err, ErrNotSent) || errors.Is(err, ErrHalfGone) {
			s.release(ctx, t, lease)
		}
		return t
	}
	t.Delivery, t.DeliveredAt = DeliveryDelivered, time.Now().UTC().Truncate(time.Microsecond) // as the row keeps it
	s.store.MarkDelivered(t.ID, t.DeliveredAt, a.Kind.Ordered)
	s.metrics.Delivered("half", t.Topic, t.Route.Queue)
	return t
}

func (s *Service) awaitTurn(ctx context.Context, t *Transaction) bool {
	ctx, cancel := context.WithTimeout(ctx, s.config.TurnTimeout)
	defer cancel()
	return s.store.AwaitTurn(ctx, t)
}

// release gives a lease back to the resolver.
func (s *Service) release(ctx context.Context, t *Transaction, lease Lease) {
	if err := s.store.Release(ctx, lease); err != nil {
		s.log.WarnContext(ctx, "releasing a lease; it ends by itself", "id", t.ID, "error", err)
		return
	}
	s.deliveries.Wake(t.Waiting())
}

// abort rolls the half message of an attempt back that certainly never commits. A lost rollback costs a check-back.
func (s *Service) abort(ctx context.Context, a *Attempt) {
	if a.Outbox {
		return
	}
	h := a.Half
	ctx, cancel := context.WithTimeout(ctx, s.config.AbortTimeout)
	defer cancel()
	if err := s.end(ctx, h, DecisionRollback, time.Time{}); err != nil {
		s.log.InfoContext(ctx, "rollback not confirmed, left to a check-back", "message_id", h.UniqKey, "error", err)
	}
}

// The first pause before a refused END_TRANSACTION is sent again, and the longest.
const (
	firstEndPause   = 10 * time.Millisecond
	longestEndPause = 160 * time.Millisecond
)

// end ends a half message that was stored a moment ago. A broker with transientStorePoolEnable cannot read it back until it
// has moved it from its own memory into the file, every 200 ms by default, and refuses the end as one of a half message that
// it does not have. What is refused like that was not executed and never will be, because the broker looks for the half
// message before it does anything: so it is sent again until ctx or writeBefore ends.
func (s *Service) end(ctx context.Context, h Half, d Decision, writeBefore time.Time) error {
	for pause := firstEndPause; ; pause = min(2*pause, longestEndPause) {
		err := s.broker.End(ctx, h, d, writeBefore)
		if !errors.Is(err, ErrHalfGone) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func unknown(a *Attempt) *Transaction {
	return &Transaction{
		ID: a.Request.ID, Kind: a.Kind.Name, State: StateUnknown, Delivery: DeliveryNone, ShardKey: a.Request.ShardKey,
		Topic: a.Kind.Topic, Tag: a.Request.Tag, Route: a.Route, MessageID: a.Half.UniqKey, CreatedAt: a.CreatedAt,
	}
}
