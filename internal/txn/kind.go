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
	Local    Local
	Immunity time.Duration // before the first check-back; 0: the broker's setting
	Timeout  time.Duration // of the local transaction
	Options
}

// Options say how a kind behaves. The configuration's reader sets them in its Kind, and GET /v1/kinds shows them by their
// JSON names. docs/architecture.md lists all places that a new option needs. The zero value of each is its default, except in
// answers: see DefaultOptions.
type Options struct {
	Ordered    bool       `json:"ordered"`  // messages of one topic and shard key become visible in the order of their commits
	Via        Via        `json:"delivery"` // how the message gets to the broker
	Fallback   Fallback   `json:"fallback"` // what happens when no half message can be stored
	Body       BodySource `json:"body"`
	RetainBody bool       `json:"-"` // the body stays in the row when the message is visible

	// ResultLimit is how many bytes the result of the local transaction may have, as JSON; 0: DefaultResultLimit. A larger one
	// is refused, and nothing is committed.
	ResultLimit int `json:"result_limit"`
}

// DefaultOptions are those of a kind for which the configuration says nothing.
func DefaultOptions() Options {
	return Options{Via: ViaHalf, Fallback: FallbackReject, Body: BodyPayload, ResultLimit: DefaultResultLimit}
}

// Local is the sort of a kind's local transaction.
type Local string

// The sorts of local transactions.
const (
	LocalSQL     Local = "sql"
	LocalHandler Local = "handler" // in Go
)

// Fallback is what happens to a request when no half message can be stored.
type Fallback string

// The fallbacks.
const (
	FallbackReject Fallback = "reject" // it is refused
	FallbackOutbox Fallback = "outbox" // its message goes by the outbox
)

// BodySource is where the body of a message comes from.
type BodySource string

// The sources of bodies.
const (
	BodyPayload BodySource = "payload"
	BodyResult  BodySource = "result" // of the local transaction; with ViaOutbox only
)

// Via is how the message of a transaction gets to the broker.
type Via string

// The ways of a message.
const (
	// ViaHalf: a half message is stored before the local transaction runs, and ended after it.
	ViaHalf Via = "half"
	// ViaOutbox: the outbox sends a normal message after the COMMIT, off the row.
	ViaOutbox Via = "outbox"
)

// DefaultResultLimit bounds the results of kinds that set no limit, and MaxResultLimit the limits that kinds can set,
// because a result may be the body of the message.
const (
	DefaultResultLimit = 64 << 10
	MaxResultLimit     = MaxMessageSize
)

// ResultBytes returns how many bytes the result may have.
func (k *Kind) ResultBytes() int { return cmp.Or(k.ResultLimit, DefaultResultLimit) }

// Schema checks a payload. The result has the mistakes, with pointers relative to the payload; it is empty for a valid
// payload.
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
