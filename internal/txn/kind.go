package txn

import (
	"encoding/json"
	"time"
)

// Kind is a named transaction: where its message goes and how its local transaction is bounded. Kinds are read from the
// configuration at start and do not change. What the local transaction does is known to the Store only.
type Kind struct {
	Name     string
	Path     string // endpoint of its own, empty for none
	Topic    string
	Tag      string // default tag; a request may give another
	Selector Selector
	Schema   Schema // nil: any JSON
	Immunity time.Duration
	Timeout  time.Duration // of the local transaction
	Local    string        // "handler" or "sql", for GET /v1/kinds
}

// Schema checks a payload. The result names what is wrong, with pointers relative to the payload; it is empty when the
// payload is valid.
type Schema interface {
	Validate(payload json.RawMessage) []FieldError
}

// SelectorInput is what a selector may look at.
type SelectorInput struct {
	ShardKey string
	Arg      json.RawMessage // selector_arg; nil when not given
}

// Selector picks a queue. Select is pure and safe for concurrent use. Queues are sorted (Queue.Compare), writable, and at
// least one. An *Error says why it cannot choose; it never falls back silently.
type Selector interface {
	Name() string
	Select(queues []Queue, in SelectorInput) (Route, error)
}
