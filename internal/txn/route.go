package txn

import (
	"context"
	"encoding/json"
)

// SelectorInput is what a selector may look at. Nothing of it but the shard key gets into the message.
type SelectorInput struct {
	ShardKey string
	Arg      json.RawMessage // selector_arg; nil when not given
	Payload  json.RawMessage // the payload, or a message's body; nil when there is none that is JSON
	// Header returns the first value of a request's header, "" when it is not there; nil where there is no request.
	Header func(name string) string
}

// Selector picks a queue. Select is pure and safe for concurrent use. Queues are sorted (Queue.Compare), writable, and at
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
}

// Router picks the queue of a message, whether it belongs to a transaction or not.
type Router interface {
	// Route asks the destination's selector. The error is an *Error: what the selector refuses, or CodeBrokerUnavailable when
	// the topic has no queue that can be used now.
	Route(ctx context.Context, d Destination, in SelectorInput) (Route, error)
}

// DirectRouter chooses among the queues that the broker tells of at that moment.
type DirectRouter struct {
	Broker interface {
		Queues(ctx context.Context, topic string) ([]Queue, error)
	}
}

// Route implements Router.
func (r DirectRouter) Route(ctx context.Context, d Destination, in SelectorInput) (Route, error) {
	queues, err := r.Broker.Queues(ctx, d.Topic)
	if err != nil {
		return Route{}, beforeAnything(err)
	}
	return d.Selector.Select(queues, in)
}

func (s *Service) route(ctx context.Context, kind *Kind, r Request) (Route, error) {
	return DirectRouter{s.broker}.Route(ctx, kind.Destination, SelectorInput{
		ShardKey: r.ShardKey, Arg: r.SelectorArg, Payload: r.Payload, Header: r.Header,
	})
}
