package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// SelectorInput is what a selector may look at. Nothing of it but the shard key gets into the message.
type SelectorInput struct {
	ShardKey string
	Arg      json.RawMessage // selector_arg; nil when not given
	Payload  json.RawMessage // the payload, or a message's body; nil when there is none that is JSON
	// Header returns the first value of a request's header, "" when it is not there; nil where there is no request.
	Header func(name string) string
}

// Selector picks a queue. Select is pure and safe for concurrent use. Queues are sorted (Queue.Compare), usable, and at
// least one. An *Error says why it cannot choose; it never falls back silently.
type Selector interface {
	Name() string
	Select(queues []Queue, in SelectorInput) (Route, error)
}

// OnChange says what becomes of keys whose queue another list of queues would change.
type OnChange string

// The answers to a changed list of queues.
const (
	OnChangeRemap  OnChange = "remap"  // choose among the queues that are there now
	OnChangeRefuse OnChange = "refuse" // choose among the queues that were accepted, and refuse those that are not there now
)

// Destination is a topic with the strategy that picks its queues.
type Destination struct {
	Topic    string
	Selector Selector
	OnChange OnChange
	// Java: the selector chooses from the list that RocketMQ's Java client makes of the topic, and refuses what cannot be used.
	Java bool
	// Keeps is the selector of ordered messages, as text. With OnChangeRefuse no other one than the accepted one is used.
	Keeps string
}

// Router picks the queue of a message, whether it belongs to a transaction or not.
type Router interface {
	// Route asks the destination's selector. The error is an *Error: what the selector refuses, or CodeBrokerUnavailable when
	// the topic has no queue that can be used now.
	Route(ctx context.Context, d Destination, in SelectorInput) (Route, error)
}

// QueueWatch knows what becomes of a topic's queues.
type QueueWatch interface {
	// Refresh asks where the topic's queues are now, after a broker has refused one; what it learns, Route goes by. That nobody
	// answers in time is not an error: then nothing is known that was not known before.
	Refresh(ctx context.Context, topic string)
	// Readable says, from memory, that the topic has the queue and consumers read it: what is put there is found.
	Readable(topic string, q Queue) bool
}

// Routing is what the flow needs to know of queues.
type Routing interface {
	Router
	QueueWatch
	// RouteKnown is Route by the queues that were known last, for a message that is not sent now.
	RouteKnown(ctx context.Context, d Destination, in SelectorInput) (Route, error)
}

// renewTimeout bounds the waiting for a renewed list of queues. A half message is on its way to nowhere, or a lease is
// running, while it lasts.
const renewTimeout = 500 * time.Millisecond

// slowLocal is how long a local transaction may take before the topic's queues are looked at again: lists in memory are
// renewed every few seconds only.
const slowLocal = time.Second

func (s *Service) route(ctx context.Context, kind *Kind, r Request) (Route, error) {
	route, err := s.routing.Route(ctx, kind.Destination, selectorInput(r))
	return route, beforeAnything(err)
}

func selectorInput(r Request) SelectorInput {
	return SelectorInput{ShardKey: r.ShardKey, Arg: r.SelectorArg, Payload: r.Payload, Header: r.Header}
}

// sendRouted stores a half message in the attempt's queue. When that cannot take it, the topic is looked at again, and if
// its queues have changed, the attempt goes to the queue that it has now: once.
func (s *Service) sendRouted(ctx context.Context, a *Attempt) error {
	err := s.sendHalf(ctx, a)
	if !queueMayBeGone(err) {
		return err
	}
	s.renew(ctx, a.Kind.Topic)
	again, routeErr := s.route(ctx, a.Kind, a.Request)
	if routeErr != nil {
		return routeErr
	}
	if again.Queue == a.Route.Queue {
		return err
	}
	s.log.WarnContext(ctx, "half message refused, routed again", "id", a.Request.ID, "topic", a.Kind.Topic,
		"from", a.Route.Queue.String(), "to", again.Queue.String(), "error", err)
	a.Route = again
	return s.sendHalf(ctx, a)
}

// queueMayBeGone: the broker does not have the queue, or cannot be reached. A busy one has it.
func queueMayBeGone(err error) bool {
	return errors.Is(err, ErrNoQueue) || errors.Is(err, ErrNotSent) && !errors.Is(err, ErrBusy)
}

func (s *Service) renew(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	s.routing.Refresh(ctx, topic)
}

// endInQueue makes the message visible, unless its queue was removed since the half message was stored, or may have been:
// the broker would put the message there all the same, where no consumer finds it.
func (s *Service) endInQueue(ctx context.Context, a *Attempt, lease Lease) error {
	if time.Since(a.CreatedAt) > slowLocal {
		s.renew(ctx, a.Kind.Topic)
	}
	if !s.routing.Readable(a.Kind.Topic, a.Route.Queue) {
		return fmt.Errorf("%w: %w: consumers do not read queue %s of topic %s", ErrNotSent, ErrNoQueue, a.Route.Queue, a.Kind.Topic)
	}
	return s.end(ctx, a.Half, DecisionCommit, lease.WriteBefore)
}
