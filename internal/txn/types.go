package txn

import (
	"encoding/json"
	"strconv"
	"time"
)

// State is the known state of the local transaction.
type State string

// The states of a local transaction. StateUnknown is never stored: it is the answer to a request whose COMMIT was sent
// and whose outcome is not known yet, or not confirmed as durably as the database is configured to.
const (
	StatePrepared   State = "prepared"
	StateCommitted  State = "committed"
	StateRolledBack State = "rolled_back"
	StateUnknown    State = "unknown"
)

// Delivery is the known state of the message.
type Delivery string

// The states of a delivery. DeliveryDelivered means that the broker confirmed that the message is visible.
const (
	DeliveryNone      Delivery = "none"
	DeliveryPending   Delivery = "pending"
	DeliveryDelivered Delivery = "delivered"
)

// Queue is one queue of a topic: the broker's name and the queue's id on it.
type Queue struct {
	Broker string
	ID     int
}

// String returns "broker:id", the form used in reasons, logs and the lanes of a configuration.
func (q Queue) String() string { return q.Broker + ":" + strconv.Itoa(q.ID) }

// Compare orders queues by broker name, then id: the order in which every replica sees them.
func (q Queue) Compare(other Queue) int {
	switch {
	case q.Broker < other.Broker:
		return -1
	case q.Broker > other.Broker:
		return 1
	default:
		return q.ID - other.ID
	}
}

// Route is the outcome of a selector: the queue, and why it was picked.
type Route struct {
	Queue    Queue
	Selector string // the selector's type, e.g. "hash"
	Lane     string // the named set of queues that it was picked from; empty without lanes
	Reason   string // for people, e.g. "fnv1a64(shard_key) mod 8 = 3"
}

// Message is what a consumer will see, and the queue it will see it in.
type Message struct {
	UniqKey     string // 32 hex digits, RocketMQ's client-side message id; every copy of the message keeps it
	Topic       string
	Tag         string
	Keys        []string // additional keys, after the transaction id
	ShardKey    string
	TxID        string
	Kind        string
	Properties  map[string]string // the user's
	Traceparent string            // W3C trace context, empty when not traced
	Body        []byte
	Queue       Queue
	Immunity    time.Duration // before the first check-back; 0 leaves it to the broker
	DelayLevel  int           // of a message without a transaction: RocketMQ's delay level; 0 for none
	DeliverAt   time.Time     // of a message without a transaction: not visible before; zero for at once
}

// ProbeKind is the TX_KIND of half messages of the service's own, which are rolled back at once and have no TX_ID: they show
// something of the broker that stores them.
const ProbeKind = "-mark"

// Half names one stored half message, or one copy of it that the broker made when it asked back: what END_TRANSACTION
// needs. All copies share the UniqKey; the coordinates differ.
type Half struct {
	UniqKey         string
	Broker          string
	CommitLogOffset int64 // of this copy, in bytes
	QueueOffset     int64 // of this copy in the half queue, counted in messages
	TransactionID   string
	FromCheck       bool // the coordinates came with a check-back
	// StoredAt is when its process sent it, on the clock of that process, in milliseconds; zero unless a broker asks about it.
	StoredAt time.Time
}

// producerDigits are the first digits of a UNIQ_KEY, which all of one process have in common, and no other process has: its
// address, its process id and a random number.
const producerDigits = 20

// ProducerOf returns the part of a UNIQ_KEY that identifies the process which made it.
func ProducerOf(uniqKey string) string { return uniqKey[:min(len(uniqKey), producerDigits)] }

// Reach is the last place that a message in the broker's log has reached.
type Reach int

// The places where a message can be found, in the order in which a broker writes them.
const (
	ReachNothing Reach = iota
	ReachQueue         // in its queue
	ReachIndex         // and in the message index
)

// Decision is the decision of an END_TRANSACTION.
type Decision string

// The decisions. There is no "unknown": an undecided half message is left unanswered, and the broker asks again.
const (
	DecisionCommit   Decision = "commit"
	DecisionRollback Decision = "rollback"
)

// Rejection says why a local transaction refused: a business rule, not a fault. It is stored, and the same id gets the
// same answer. It carries no values of the payload.
type Rejection struct {
	Message    string `json:"message"`
	SQLState   string `json:"sqlstate,omitempty"`
	Constraint string `json:"constraint,omitempty"`
}

// Error makes a Rejection usable as an error in a Go handler.
func (r *Rejection) Error() string { return r.Message }

// Transaction is the row, as clients see it.
type Transaction struct {
	ID         string
	Kind       string
	State      State
	Delivery   Delivery
	ShardKey   string
	Topic      string
	Tag        string
	Keys       []string
	Properties map[string]string
	Route      Route
	MessageID  string // the UniqKey of the (half) message that the row belongs to
	Result     json.RawMessage
	// ResultTooLarge is the size in bytes of a result that is too large to be read, and 0 otherwise: Result is nil then.
	ResultTooLarge int
	Rejection      *Rejection
	CreatedAt      time.Time
	DecidedAt      time.Time // zero until decided
	DeliveredAt    time.Time // zero until delivered
	ExpiresAt      time.Time // zero unless prepared
	Ordered        bool      // its message waits for those before it
	PendingReason  string    // why the message is not visible; empty while no reason is known
	Parked         bool      // its delivery is not tried again until an operator asks for it

	Fingerprint Fingerprint // of the request; empty on an abandoned row
	// Abandoned is true for a row that only fences half messages of attempts that never committed: a new attempt with the
	// same id may replace it.
	Abandoned bool
	Replayed  bool // this answer repeats an earlier one; nothing was done
}

// Waiting names the place where the message of a committed row waits.
func (t *Transaction) Waiting() Waiting {
	return Waiting{Topic: t.Topic, Broker: t.Route.Queue.Broker, ShardKey: t.ShardKey, Ordered: t.Ordered}
}

// Request is one transaction as a client asked for it.
type Request struct {
	Kind        string
	ID          string // empty: one is generated
	ShardKey    string
	Payload     json.RawMessage // byte for byte as sent
	SelectorArg json.RawMessage
	LocalArg    json.RawMessage
	Tag         string
	Keys        []string
	Properties  map[string]string
	Traceparent string
	Header      func(name string) string // of the HTTP request, for selectors; nil: there is none
	Parsed      any                      // the result of the kind's Parser; nil without one
}

// NoHalf is the value of a half message's offsets in a row without one.
const NoHalf = -1

// Attempt is one try at one request. It has the half message, if there is one, and everything for the row.
type Attempt struct {
	Kind        *Kind
	Request     Request // with its id
	Fingerprint Fingerprint
	Route       Route
	Message     Message
	Via         Via
	Half        Half // with ViaOutbox: the UniqKey and the broker only, and NoHalf
	Relay       bool // with ViaOutbox: this process is going to deliver the message, so the row may be tracked
	CreatedAt   time.Time
	RunBy       time.Time // its local transaction is run again only if that ends before; zero: no bound

	decided chan struct{} // closed when its unknown outcome is known; nil: it never was unknown
}

// waiting names the place where the message waits once it is committed.
func (a *Attempt) waiting() Waiting {
	return Waiting{Topic: a.Kind.Topic, Broker: a.Route.Queue.Broker, ShardKey: a.Request.ShardKey, Ordered: a.Kind.Ordered}
}

// IsLast reports whether the time is too short to run the local transaction once more. Waiting for a connection and
// running take the kind's timeout each at most.
func (a *Attempt) IsLast(now time.Time) bool {
	return !a.RunBy.IsZero() && now.Add(2*a.Kind.Timeout).After(a.RunBy)
}

// Decided wakes requests that wait for the outcome of an attempt that was added to Undecided. It is called once, when
// the row has the outcome.
func (a *Attempt) Decided() {
	if a.decided != nil {
		close(a.decided)
	}
}
