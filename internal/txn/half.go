package txn

import (
	"context"
	"errors"
	"time"
)

// routeOrKnown routes. Where no half message is needed, the queue need not be writable now.
func (s *Service) routeOrKnown(ctx context.Context, kind *Kind, r Request) (route Route, writable bool, err error) {
	route, err = s.route(ctx, kind, r)
	if err == nil || !kind.Fallback && !kind.Outbox || CodeOf(err) != CodeBrokerUnavailable {
		return route, err == nil, err
	}
	if known, knownErr := s.routing.RouteKnown(ctx, kind.Destination, selectorInput(r)); knownErr == nil {
		return known, false, nil
	}
	return route, false, err
}

// prepare stores the half message, or does without where the kind has none, or lets it be without one.
func (s *Service) prepare(ctx context.Context, a *Attempt, writable bool) error {
	if a.Kind.Outbox {
		s.withoutHalf(a)
		return nil
	}
	err := error(errSilent)
	if !a.Kind.Fallback || writable && s.deliveries.Alive(a.Route.Queue.Broker) {
		err = s.sendRouted(ctx, a)
	}
	if err == nil || !a.Kind.Fallback || CodeOf(err) != CodeBrokerUnavailable {
		return err
	}
	s.metrics.Fallbacks.WithLabelValues(a.Kind.Name).Inc()
	if now, last := time.Now().Unix(), s.fellBack.Load(); now-last >= fallbackWarn && s.fellBack.CompareAndSwap(last, now) {
		s.log.WarnContext(ctx, "half messages cannot be stored; messages are left to the relay", "id", a.Request.ID, "kind", a.Kind.Name, "error", err)
	}
	s.withoutHalf(a)
	return nil
}

// fallbackWarn is the least time between two warnings, in seconds: an outage is not told for every request.
const fallbackWarn = 30

// errSilent stands for the half message that a silent broker would let wait for its timeout.
var errSilent = Errorf(CodeBrokerUnavailable, "the broker does not answer")

// withoutHalf gives the attempt a new UNIQ_KEY: a half message that was stored after all is rolled back when the broker
// asks, since the row names another.
func (s *Service) withoutHalf(a *Attempt) {
	a.Outbox = true
	a.Message = message(a, s.broker.NewUniqKey())
	a.Half = Half{UniqKey: a.Message.UniqKey, Broker: a.Route.Queue.Broker, CommitLogOffset: NoHalf, QueueOffset: NoHalf}
}

// slowHalf is how long half messages may have taken before a kind that can do without one does without another try.
const slowHalf = time.Second

// sendHalf stores a half message for the attempt. A try whose reply is missing may have left one behind: it has another
// UNIQ_KEY than the next, no row will ever name it, and the broker's check-back rolls it back.
func (s *Service) sendHalf(ctx context.Context, a *Attempt) error {
	var err error
	began := time.Now()
	for attempt, busy := 0, 0; attempt < s.config.HalfAttempts; {
		a.Message = message(a, s.broker.NewUniqKey())
		if a.Half, err = s.storeHalf(ctx, a.Message); err == nil {
			return nil
		}
		pause, patient := BusyPause(busy)
		switch {
		case errors.Is(err, ErrBusy) && patient: // a cold or loaded broker takes more in a moment
			time.Sleep(pause)
			busy++
		case a.Kind.Fallback && time.Since(began) > slowHalf:
			attempt = s.config.HalfAttempts
		case errors.Is(err, ErrNotSent), errors.Is(err, ErrReplyMissing):
			attempt++
		default:
			attempt = s.config.HalfAttempts
		}
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return beforeAnything(err)
	}
	return BrokerUnavailable(err, "no half message could be stored in queue %s: %s; nothing was changed", a.Route.Queue, Why(err))
}

func (s *Service) storeHalf(ctx context.Context, m Message) (Half, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.HalfTimeout)
	defer cancel()
	return s.broker.SendHalf(ctx, m)
}

func message(a *Attempt, uniqKey string) Message {
	return Message{
		UniqKey: uniqKey, Topic: a.Kind.Topic, Tag: a.Request.Tag, Keys: a.Request.Keys, ShardKey: a.Request.ShardKey,
		TxID: a.Request.ID, Kind: a.Kind.Name, Properties: a.Request.Properties, Traceparent: a.Request.Traceparent,
		Body: a.Request.Payload, Queue: a.Route.Queue, Immunity: a.Kind.Immunity,
	}
}
