package txsvc

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// Selector chooses the queue of a message. It must be safe for concurrent use.
type Selector interface {
	// Select returns one of the queues. These are the topic's usable queues, at least one, sorted by broker and id; the list
	// belongs to the selector. All replicas must choose the same, so Select goes by its arguments and options alone. The
	// error is of Invalid or NoQueue; any other is answered 500.
	Select(queues []Queue, in SelectorInput) (Choice, error)

	// ByShardKey says whether Select goes by the shard key alone, so that messages of one key stay in one queue while the
	// topic's queues stay the same. Ordered kinds need a selector that says so. It then sees the shard key alone.
	ByShardKey() bool
}

// SelectorInput is the message, as far as a selector sees it.
type SelectorInput struct {
	ShardKey string
	Arg      json.RawMessage // selector_arg; nil when not given
	Payload  json.RawMessage // nil when the message has no JSON as its body

	// Header returns the first value of a header of the HTTP request; "" when there is none. It may be nil only in tests that set
	// none.
	Header func(name string) string
}

// Queue is one queue of a topic.
type Queue struct {
	Broker string
	ID     int
}

// String returns the form broker:id.
func (q Queue) String() string { return q.Broker + ":" + strconv.Itoa(q.ID) }

// Choice is the outcome of a selector.
type Choice struct {
	Queue Queue
	// Lane names the set of queues that the selector chose from, for answers and previews; it may be empty.
	Lane string
	// Reason says in a few words why this queue, for answers and previews. It is stored, so it must not repeat the request.
	Reason string
}

// Options are what the configuration gives a selector: the fields of its mapping, except type and on_change.
type Options struct{ decode selector.Decode }

// Decode stores the options in the struct that into points to, by its yaml tags. It is strict: a field that the struct does not
// have is an error, as is a value of another type; both name their place in the file. Without options it changes nothing.
func (o Options) Decode(into any) error {
	if o.decode == nil {
		return nil
	}
	return o.decode(into)
}

// ParseOptions reads options from YAML, for tests of a selector.
func ParseOptions(text string) Options {
	return Options{func(into any) error { return yaml.UnmarshalWithOptions([]byte(text), into, yaml.Strict()) }}
}

// OptionErrorf says what is wrong at a place in the options, which pointer names as a JSON Pointer (RFC 6901), like
// /regions/eu. check-config and the start of the service show it with line and column.
func OptionErrorf(pointer, format string, args ...any) error {
	return selector.OptionErrorf(pointer, format, args...)
}

// FieldError says what is wrong with one field of a request, which Pointer names as a JSON Pointer (RFC 6901), like
// /payload/amount or /shard_key.
type FieldError struct {
	Pointer string
	Message string // must not repeat the value
}

// Invalid is the error of a handler or a selector for a request with wrong fields. It is answered 400 with the code
// invalid_request. Nothing is stored: the same id may be used again.
func Invalid(fields ...FieldError) error {
	list := make([]txn.FieldError, len(fields))
	for i, f := range fields {
		list[i] = txn.FieldError(f)
	}
	return txn.Invalid(list...)
}

// NoQueue is the error of a selector for a request that none of the present queues will do for. It is answered 503 with the
// code broker_unavailable and the text, which is for the client: the request may succeed later.
func NoQueue(format string, args ...any) error {
	return txn.BrokerUnavailable(nil, "%s", fmt.Sprintf(format, args...))
}

// factory makes the maker of a user's selectors one that the service knows.
func factory(make func(Options) (Selector, error)) selector.Factory {
	if make == nil {
		return nil
	}
	return func(decode selector.Decode) (txn.Selector, error) {
		s, err := make(Options{decode})
		if err != nil || s == nil {
			return nil, err
		}
		return chooser{s, s.ByShardKey()}, nil
	}
}

// chooser makes a Selector one that the service knows.
type chooser struct {
	selector Selector
	byKey    bool
}

// Name is not used: the name is that of the type.
func (chooser) Name() string { return "" }

// ByShardKey returns what the selector says.
func (c chooser) ByShardKey() bool { return c.byKey }

// Select asks the selector.
func (c chooser) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	list := make([]Queue, len(queues))
	for i, q := range queues {
		list[i] = Queue(q)
	}
	if in.Header == nil {
		in.Header = func(string) string { return "" }
	}
	choice, err := c.selector.Select(list, SelectorInput(in))
	if err != nil {
		return txn.Route{}, err
	}
	return txn.Route{Queue: txn.Queue(choice.Queue), Lane: choice.Lane, Reason: choice.Reason}, nil
}
