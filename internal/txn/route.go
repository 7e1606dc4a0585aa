package txn

import (
	"context"
	"encoding/json"
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

// Selector picks a queue. Select is safe for concurrent use, and pure, except for round_robin. Queues are sorted (Queue.Compare), usable, and at
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
	// OrderedSelector is the text of the selector of ordered messages; empty: the messages have no order. With OnChangeRefuse
	// no other one than the accepted one is used.
	OrderedSelector string
}

// Router picks the queue of a message, whether it belongs to a transaction or not.
type Router interface {
	// Route asks the destination's selector. The error is an *Error: the selector's refusal, or CodeBrokerUnavailable
	// when the topic has no queue that can be used now.
	Route(ctx context.Context, d Destination, in SelectorInput) (Route, error)
}

// QueueWatch knows the changes of a topic's queues.
type QueueWatch interface {
	// Refresh asks name servers for the topic's queues, after a broker has refused one. Route uses the answer. If no
	// answer comes in time, nothing changes; that is no error.
	Refresh(ctx context.Context, topic string)
	// Readable reports, from memory, whether the topic has the queue and consumers read it.
	Readable(topic string, q Queue) bool
}

// Routing gives the flow what it needs to know about queues.
type Routing interface {
	Router
	QueueWatch
	// RouteKnown is Route by the queues that were known last, for a message that is not sent now.
	RouteKnown(ctx context.Context, d Destination, in SelectorInput) (Route, error)
}

// route picks the queue. Where no half message is needed, the queue need not be writable now: it is picked from those that
// were known last.
func (s *Service) route(ctx context.Context, r *submission) (route Route, writable bool, err error) {
	asking, cancel := within(ctx, s.config.Timing.RouteWithin, r.by.route)
	defer cancel()
	kind, in := r.kind, selectorInput(&r.Request)
	route, err = s.routing.Route(asking, kind.Destination, in)
	if err == nil || kind.Fallback != FallbackOutbox && kind.Via != ViaOutbox || CodeOf(err) != CodeBrokerUnavailable {
		return route, err == nil, Undone(err, nothingChanged)
	}
	asking, cancelKnown := within(ctx, s.config.Timing.AcceptedWithin, r.by.route)
	defer cancelKnown()
	if known, knownErr := s.routing.RouteKnown(asking, kind.Destination, in); knownErr == nil {
		return known, false, nil
	}
	return route, false, Undone(err, nothingChanged)
}

func selectorInput(r *Request) SelectorInput {
	return SelectorInput{ShardKey: r.ShardKey, Arg: r.SelectorArg, Payload: r.Payload, Header: r.Header}
}

// refresh lets the topic's queues be looked at again.
func (s *Service) refresh(ctx context.Context, topic string, by time.Time) {
	ctx, cancel := within(ctx, s.config.Timing.RefreshWithin, by)
	defer cancel()
	s.routing.Refresh(ctx, topic)
}
