package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
)

// Config bounds the flow.
type Config struct {
	MaxInFlight int // transactions worked on at once; more are answered "overloaded"
	Timing      Timing
	// Reached is called with the name of a point that an attempt has reached, so that tests can stop the process there; nil in
	// production builds.
	Reached func(point string)
}

// Service runs transactions. It is safe for concurrent use.
type Service struct {
	config     Config
	kinds      map[string]boundedKind
	routing    Routing
	broker     Broker
	store      Store
	deliveries Deliveries
	metrics    *Metrics
	log        *slog.Logger
	slots      chan struct{}
	flights    flights
	turns      turns
	fellBack   atomic.Int64 // when it was logged last that half messages cannot be stored, in seconds of Unix time
}

// boundedKind is a kind with the time that its requests have.
type boundedKind struct {
	kind    *Kind
	budget  Budget
	metrics *kindMetrics
}

// NewService returns a Service for the given kinds.
func NewService(config Config, kinds []*Kind, routing Routing, broker Broker, store Store, deliveries Deliveries, metrics *Metrics, log *slog.Logger) *Service {
	s := &Service{
		config: config, kinds: make(map[string]boundedKind, len(kinds)),
		routing: routing, broker: broker, store: store, deliveries: deliveries, metrics: metrics, log: log,
		slots: make(chan struct{}, config.MaxInFlight),
	}
	for _, kind := range kinds {
		s.kinds[kind.Name] = boundedKind{kind, config.Timing.Budget(kind), metrics.expect(kind)}
	}
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

// Redeliver lets a parked message be tried once more. It is safe to repeat, and returns the transaction
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

// reached reports a point of the flow to a test that wants to know of it.
func (s *Service) reached(point string) {
	if s.config.Reached != nil {
		s.config.Reached(point)
	}
}
