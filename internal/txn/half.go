package txn

import (
	"context"
	"time"
)

// prepare stores the half message of an attempt. It does without one where the kind has none, and, where the kind has a
// fallback, when none can be stored: then the outbox sends the message.
func (s *Service) prepare(ctx context.Context, a *Attempt, writable bool, by time.Time) error {
	if a.Kind.Via == ViaOutbox {
		s.leaveToOutbox(a)
		a.Relay = !a.Kind.Ordered && s.deliveries.Takes(a.waiting())
		return nil
	}
	err := error(errSilent)
	if a.Kind.Fallback != FallbackOutbox || writable && s.deliveries.Alive(a.Route.Queue.Broker) {
		err = s.sendRouted(ctx, a, by)
	}
	if err == nil || a.Kind.Fallback != FallbackOutbox || CodeOf(err) != CodeBrokerUnavailable {
		return err
	}
	s.metrics.Fallbacks.WithLabelValues(a.Kind.Name).Inc()
	if now, last := time.Now().Unix(), s.fellBack.Load(); now-last >= fallbackWarn && s.fellBack.CompareAndSwap(last, now) {
		s.log.WarnContext(ctx, "half messages cannot be stored; messages are left to the outbox", "id", a.Request.ID, "kind", a.Kind.Name, "error", err)
	}
	s.leaveToOutbox(a)
	return nil
}

// fallbackWarn is the least time between two warnings, in seconds, because an outage is not worth a line for every request.
const fallbackWarn = 30

// errSilent stands for the half message that a silent broker would let wait for its timeout.
var errSilent = Errorf(CodeBrokerUnavailable, "the broker does not answer")

// leaveToOutbox gives the attempt a new UNIQ_KEY: a half message that was stored after all is rolled back when the broker
// asks, because the row names another.
func (s *Service) leaveToOutbox(a *Attempt) {
	a.Via = ViaOutbox
	a.Message = message(a, s.broker.NewUniqKey())
	a.Half = Half{UniqKey: a.Message.UniqKey, Broker: a.Route.Queue.Broker, CommitLogOffset: NoHalf, QueueOffset: NoHalf}
}

// sendRouted stores a half message in the attempt's queue. When that cannot take it, the topic is looked at again, and if
// its queues have changed, the attempt goes to the queue that it has now: once.
func (s *Service) sendRouted(ctx context.Context, a *Attempt, by time.Time) (err error) {
	a.Route, err = SendRouted(a.Route, func(route Route) error {
		a.Route = route
		return s.sendHalf(ctx, a, by)
	}, func(refused error) (Route, error) {
		s.refresh(ctx, a.Kind.Topic, by)
		routing, cancel := context.WithDeadline(ctx, by)
		defer cancel()
		route, err := s.routing.Route(routing, a.Kind.Destination, selectorInput(&a.Request))
		if err == nil && route.Queue != a.Route.Queue {
			s.log.WarnContext(ctx, "half message refused, routed again", "id", a.Request.ID, "topic", a.Kind.Topic,
				"from", a.Route.Queue.String(), "to", route.Queue.String(), "error", refused)
		}
		return route, err
	})
	if err == nil {
		return nil
	}
	return Undone(Coded(err, "no half message could be stored in queue "+a.Route.Queue.String()), nothingChanged)
}

// sendHalf stores a half message for the attempt, and tries again as long as that can help and there is time. A try whose
// reply is missing may have left a half message behind: it has another UNIQ_KEY than the next, no row will ever name it, and
// the broker's check-back rolls it back.
func (s *Service) sendHalf(ctx context.Context, a *Attempt, by time.Time) error {
	timing, began := &s.config.Timing, time.Now()
	return timing.Send(by, func() (err error) {
		a.Message = message(a, s.broker.NewUniqKey())
		a.Half, err = s.storeHalf(ctx, a.Message, by)
		return err
	}, func(err error) bool {
		return IsWorthRepeating(err) && (a.Kind.Fallback != FallbackOutbox || time.Since(began) <= timing.SlowHalf)
	})
}

func (s *Service) storeHalf(ctx context.Context, m Message, by time.Time) (Half, error) {
	ctx, cancel := within(ctx, s.config.Timing.AnswerWithin, by)
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
