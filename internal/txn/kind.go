package txn

import (
	"cmp"
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

	// ResultLimit is how many bytes the result of the local transaction may have, as JSON; 0: DefaultResultLimit. A larger one
	// is refused, and nothing is committed.
	ResultLimit int

	Ordered    bool // messages of one topic and shard key become visible in the order of their commits
	Outbox     bool // no half message: the outbox sends the message after the commit
	Fallback   bool // the same where no half message can be sent
	BodyResult bool // the body is the result; with Outbox only
}

// Via is how the message of a transaction gets to the broker.
type Via string

// The ways of a message.
const (
	// ViaHalf: a half message is stored before the local transaction runs, and ended after it.
	ViaHalf Via = "half"
	// ViaOutbox: the outbox sends a normal message after the COMMIT, off the row.
	ViaOutbox Via = "outbox"
)

// DefaultResultLimit bounds the results of kinds that set no limit, and MaxResultLimit what they can set: results stand in
// rows and answers, and a result that is the message's body has to fit into it.
const (
	DefaultResultLimit = 64 << 10
	MaxResultLimit     = MaxMessageSize
)

// ResultBytes returns how many bytes the result may have.
func (k *Kind) ResultBytes() int { return cmp.Or(k.ResultLimit, DefaultResultLimit) }

// Schema checks a payload. The result names what is wrong, with pointers relative to the payload; it is empty when the
// payload is valid.
type Schema interface {
	Validate(payload json.RawMessage) []FieldError
	// Document returns the JSON Schema itself, for clients.
	Document() json.RawMessage
}

// Parser is a Schema that also reads payloads, so that the local transaction need not read them again. Parse is true only for
// a payload that is valid; Validate then is not asked.
type Parser interface {
	Schema
	Parse(payload json.RawMessage) (value any, ok bool)
}
