package verify

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Class is the meaning of one answer, or the reason why there is none.
type Class uint8

// The classes of answers. See claims.go for the claims of each.
const (
	Committed           Class = iota + 1 // 201, or 200 to a GET: state committed
	Rejected                             // 422 rejected; or GET: rolled_back, rejected
	Mismatch                             // 422 idempotency_mismatch
	Unknown                              // 202, or GET: state unknown
	Prepared                             // an external participant has not decided
	Conflict                             // 409
	Refused                              // 400, 404 unknown_kind, 413, 415, 422 rejected and not final: nothing was changed
	Overloaded                           // 429, 503 overloaded
	BrokerUnavailable                    // 503 broker_unavailable
	DatabaseUnavailable                  // 503 database_unavailable
	Internal                             // 500
	OtherStatus                          // of a proxy, for example
	NotFound                             // GET: 404
	Abandoned                            // GET: rolled_back, never committed
	NotSent                              // no connection could be made
	Broken                               // the connection broke before the answer was whole
	TimedOut                             // no answer in time
	HungUp                               // the client left, as planned
	Malformed                            // not what the contract says
	classes             = int(iota) + 1
)

var classNames = [classes]string{
	"", "committed", "rejected", "idempotency_mismatch", "unknown", "prepared", "conflict", "refused", "overloaded", "broker_unavailable",
	"database_unavailable", "internal", "other_status", "not_found", "abandoned", "not_sent", "connection_broken", "timed_out", "hung_up", "malformed",
}

// String returns the name that reports use.
func (c Class) String() string {
	if int(c) < classes {
		return classNames[c]
	}
	return "?"
}

// Purpose is the purpose of a request.
type Purpose uint8

// The purposes of requests.
const (
	Post  Purpose = iota // the transaction's own request, the first time or again
	Other                // another request with the same id
	Get                  // GET /v1/transactions/{id}
)

var purposeNames = []string{"POST", "POST of another request", "GET"}

// Answer has the parts of one answer that are compared.
type Answer struct {
	Class     Class
	Purpose   Purpose
	Status    uint16 // 0: none
	Replayed  bool
	Delivered bool
	Target    uint8 // index of the base URL
	Latency   time.Duration
	Queue     string   // "broker:id"; empty: none
	MessageID [16]byte // zero: none
	Content   uint64   // hash of all else that must not change between answers; 0: none
	Said      *saying  // what was hashed; nil: nothing
	Detail    string   // of refusals and faults, for people; not kept
}

// definite reports whether the answer will not change any more, so that the request need not be repeated.
func (a *Answer) definite() bool {
	return slices.Contains([]Class{Committed, Rejected, Mismatch, Refused, Malformed}, a.Class)
}

// body has the fields of an answer that are read: of a transaction or a problem document.
type body struct {
	ID       string  `json:"id"`
	Kind     *string `json:"kind"`
	State    string  `json:"state"`
	Delivery string  `json:"delivery"`
	ShardKey *string `json:"shard_key"`
	Topic    *string `json:"topic"`
	Tag      *string `json:"tag"`
	Queue    *struct {
		Broker string `json:"broker"`
		ID     int    `json:"id"`
	} `json:"queue"`
	MessageID *string `json:"message_id"`
	Route     *struct {
		Selector string  `json:"selector"`
		Lane     *string `json:"lane"`
		Reason   string  `json:"reason"`
	} `json:"route"`
	Result    jsontext.Value `json:"result"`
	Error     *failure       `json:"error"`
	CreatedAt *time.Time     `json:"created_at"`
	DecidedAt *time.Time     `json:"decided_at"`
	Replayed  bool           `json:"replayed"`

	Code      string     `json:"code"`
	Detail    string     `json:"detail"`
	Rejection *rejection `json:"rejection"`
	Final     *bool      `json:"final"`
}

type failure struct {
	Code      string     `json:"code"`
	Message   string     `json:"message"`
	Rejection *rejection `json:"rejection"`
}

type rejection struct {
	SQLState   *string `json:"sqlstate"`
	Constraint *string `json:"constraint"`
}

// readAnswer makes an Answer of a whole response to a request about id.
func readAnswer(id string, purpose Purpose, status int, text []byte) Answer {
	a := Answer{Purpose: purpose, Status: uint16(status)}
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		a.Class, a.Detail = OtherStatus, "the answer is not JSON"
		if status == 200 || status == 201 || status == 202 {
			a.Class = Malformed
		}
		return a
	}
	switch status {
	case 200, 201, 202:
		a.transaction(id, &b)
	default:
		a.problem(&b)
	}
	return a
}

var ofStates = map[string]Class{"committed": Committed, "unknown": Unknown, "prepared": Prepared, "rolled_back": Rejected}

func (a *Answer) transaction(id string, b *body) {
	a.Class = ofStates[b.State]
	if b.Error != nil && b.Error.Code == "abandoned" {
		a.Class = Abandoned
	}
	posted := a.Purpose != Get
	wrong := posted && a.Status == 201 && a.Class != Committed && a.Class != Prepared || posted && a.Status == 202 && a.Class != Unknown
	if a.Class == 0 || b.ID != id || wrong || a.Class == Committed && (b.Queue == nil || b.MessageID == nil) {
		a.Class, a.Detail = Malformed, "state "+b.State+" of transaction "+b.ID
		return
	}
	a.Replayed, a.Delivered = b.Replayed, b.Delivery == "delivered"
	switch a.Class {
	case Committed:
		a.Queue, a.MessageID = queueName(b.Queue.Broker, b.Queue.ID), messageID(*b.MessageID)
		a.Said = b.said()
		a.Content = a.Said.hash()
	case Rejected:
		if b.Error != nil {
			a.Content, a.Said = rejectionHash(b.Error.Message, b.Error.Rejection), rejectionSaid(b.Error.Message, b.Error.Rejection)
		}
	default:
	}
}

var ofCodes = map[string]Class{
	"rejected": Rejected, "idempotency_mismatch": Mismatch, "conflict": Conflict, "invalid_request": Refused, "unknown_kind": Refused,
	"payload_too_large": Refused, "unsupported_media_type": Refused, "method_not_allowed": Refused, "overloaded": Overloaded,
	"broker_unavailable": BrokerUnavailable, "database_unavailable": DatabaseUnavailable, "internal": Internal, "not_found": NotFound,
}

// ofStatuses has the statuses with which a code may come.
var ofStatuses = map[Class][]uint16{
	Rejected: {422}, Mismatch: {422}, Conflict: {409}, Refused: {400, 404, 405, 413, 415, 422}, Overloaded: {429, 503},
	BrokerUnavailable: {503}, DatabaseUnavailable: {503}, Internal: {500}, NotFound: {404},
}

func (a *Answer) problem(b *body) {
	a.Class, a.Detail = ofCodes[b.Code], b.Code+": "+b.Detail
	if a.Class == Rejected && b.Final != nil && !*b.Final {
		a.Class = Refused
	}
	switch {
	case a.Class == 0, a.Class == NotFound && a.Purpose != Get:
		a.Class = OtherStatus // not an answer of the service, so it claims nothing
	case !slices.Contains(ofStatuses[a.Class], a.Status):
		a.Class = Malformed
	case a.Class == Rejected:
		a.Content, a.Said = rejectionHash(b.Detail, b.Rejection), rejectionSaid(b.Detail, b.Rejection)
	}
}

// said returns the content of an answer about a committed transaction.
func (b *body) said() *saying {
	s := &saying{texts: [sayTexts]string{sayKind: deref(b.Kind), sayShardKey: deref(b.ShardKey), sayTopic: deref(b.Topic), sayTag: deref(b.Tag)}}
	s.setResult(b.Result)
	if b.Route != nil {
		s.texts[saySelector], s.texts[sayLane], s.texts[sayReason] = b.Route.Selector, deref(b.Route.Lane), b.Route.Reason
	}
	if b.CreatedAt != nil {
		s.created = b.CreatedAt.UnixMicro()
	}
	if b.DecidedAt != nil {
		s.decided = b.DecidedAt.UnixMicro()
	}
	return s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func rejectionHash(message string, r *rejection) uint64 {
	if r == nil {
		return hashOf(message)
	}
	return hashOf(message, deref(r.SQLState), deref(r.Constraint))
}

func rejectionSaid(message string, r *rejection) *saying {
	s := &saying{texts: [sayTexts]string{sayMessage: message}}
	if r != nil {
		s.texts[saySQLState], s.texts[sayConstraint] = deref(r.SQLState), deref(r.Constraint)
	}
	return s
}

// hashOf is FNV-1a 64 of the texts, each ended by a byte that UTF-8 does not have; never 0.
func hashOf(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text)) // never fails
		_, _ = h.Write([]byte{0xff})
	}
	return max(h.Sum64(), 1)
}

// messageID packs RocketMQ's 32 hexadecimal digits, and hashes ids of another form.
func messageID(text string) (id [16]byte) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(id) {
		copy(id[:], raw)
		return id
	}
	if text != "" {
		binary.BigEndian.PutUint64(id[:], hashOf(text))
	}
	return id
}
