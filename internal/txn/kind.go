package txn

import (
	"encoding/json"
	"time"
)

// Kind is a named transaction: where its message goes and how its local transaction is bounded. Kinds are read from the
// configuration at start and do not change. What the local transaction does is known to the Store only.
type Kind struct {
	Name string
	Path string // endpoint of its own, empty for none
	Destination
	Tag      string // default tag; a request may give another
	Schema   Schema // nil: any JSON
	Immunity time.Duration
	Timeout  time.Duration // of the local transaction
	Local    string        // "handler" or "sql", for GET /v1/kinds

	Ordered    bool // messages of one topic and shard key become visible in the order of their commits
	Outbox     bool // no half message: the relay sends the message after the commit
	Fallback   bool // the same where no half message can be sent
	BodyResult bool // the body is the result; with Outbox only
}

// Schema checks a payload. The result names what is wrong, with pointers relative to the payload; it is empty when the
// payload is valid.
type Schema interface {
	Validate(payload json.RawMessage) []FieldError
}
