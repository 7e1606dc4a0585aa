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

func (s *Service) route(ctx context.Context, kind *Kind, r Request) (Route, error) {
	queues, err := s.broker.Queues(ctx, kind.Topic)
	if err != nil {
		return Route{}, beforeAnything(err)
	}
	return kind.Selector.Select(queues, SelectorInput{
		ShardKey: r.ShardKey, Arg: r.SelectorArg, Payload: r.Payload, Header: r.Header,
	})
}
