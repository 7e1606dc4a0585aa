package http

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// transactionJSON is the schema Transaction of openapi.yaml. Every field is always there, null when it is not set.
type transactionJSON struct {
	ID          string         `json:"id"`
	Kind        optional       `json:"kind"`
	State       txn.State      `json:"state"`
	Delivery    txn.Delivery   `json:"delivery"`
	ShardKey    optional       `json:"shard_key"`
	Topic       optional       `json:"topic"`
	Tag         optional       `json:"tag"`
	Queue       *queueJSON     `json:"queue"`
	MessageID   optional       `json:"message_id"`
	Route       *routeJSON     `json:"route"`
	Result      jsontext.Value `json:"result"`
	Error       *failureJSON   `json:"error"`
	CreatedAt   instant        `json:"created_at"`
	DecidedAt   instant        `json:"decided_at"`
	DeliveredAt instant        `json:"delivered_at"`
	ExpiresAt   instant        `json:"expires_at"`
	Replayed    bool           `json:"replayed"`
}

type queueJSON struct {
	Broker string `json:"broker"`
	ID     int    `json:"id"`
}

type routeJSON struct {
	Selector string   `json:"selector"`
	Lane     optional `json:"lane"`
	Reason   string   `json:"reason"`
}

// failureJSON says why a transaction was rolled back, or its message is not visible.
type failureJSON struct {
	Code      txn.Code       `json:"code"`
	Message   string         `json:"message"`
	Rejection *rejectionJSON `json:"rejection"`
}

// rejectionJSON is PostgreSQL's refusal. The constraint is the name of a rule of the schema, not a value.
type rejectionJSON struct {
	SQLState   optional `json:"sqlstate"`
	Constraint optional `json:"constraint"`
}

// Codes that only occur inside a transaction: of attempts that never committed, and of messages that are not visible yet.
const (
	codeAbandoned      txn.Code = "abandoned"
	codeDelayed        txn.Code = "delayed"
	codeUndeliverable  txn.Code = "undeliverable"
	codeResultTooLarge txn.Code = "result_too_large" // of a committed one
)

// optional is a string whose absence is null.
type optional string

// MarshalJSONTo writes the string, or null when it is empty.
func (o *optional) MarshalJSONTo(enc *jsontext.Encoder) error {
	if *o == "" {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteToken(jsontext.String(string(*o)))
}

// instant is a time in UTC with microseconds, which is what PostgreSQL keeps, or null when it is zero.
type instant time.Time

// MarshalJSONTo writes the time as RFC 3339 has it.
func (i *instant) MarshalJSONTo(enc *jsontext.Encoder) error {
	t := time.Time(*i)
	if t.IsZero() {
		return enc.WriteToken(jsontext.Null)
	}
	return enc.WriteValue(t.UTC().AppendFormat(enc.AvailableBuffer(), `"2006-01-02T15:04:05.000000Z"`))
}

// encodable returns the transaction in the form that clients see.
func encodable(t *txn.Transaction) *transactionJSON {
	out := &transactionJSON{
		ID: t.ID, Kind: optional(t.Kind), State: t.State, Delivery: t.Delivery, ShardKey: optional(t.ShardKey),
		Topic: optional(t.Topic), Tag: optional(t.Tag), MessageID: optional(t.MessageID), Result: jsontext.Value(t.Result),
		Error: failureOf(t), CreatedAt: instant(t.CreatedAt), DecidedAt: instant(t.DecidedAt),
		DeliveredAt: instant(t.DeliveredAt), ExpiresAt: instant(t.ExpiresAt), Replayed: t.Replayed,
	}
	if t.Route.Queue.Broker != "" {
		out.Queue = &queueJSON{t.Route.Queue.Broker, t.Route.Queue.ID}
		out.Route = &routeJSON{t.Route.Selector, optional(t.Route.Lane), t.Route.Reason}
	}
	if t.Abandoned {
		out.State = txn.StateRolledBack
	}
	return out
}

func failureOf(t *txn.Transaction) *failureJSON {
	switch {
	case t.Abandoned:
		return &failureJSON{Code: codeAbandoned, Message: "the request ended before its local transaction committed, and nothing was changed; its id may be used again"}
	case t.Rejection != nil:
		return &failureJSON{Code: txn.CodeRejected, Message: t.Rejection.Message, Rejection: rejectionOf(t.Rejection)}
	case t.Delivery == txn.DeliveryPending && t.Parked:
		return &failureJSON{Code: codeUndeliverable, Message: t.PendingReason}
	case t.Delivery == txn.DeliveryPending && t.PendingReason != "":
		return &failureJSON{Code: codeDelayed, Message: t.PendingReason}
	case t.ResultTooLarge > 0:
		return &failureJSON{Code: codeResultTooLarge, Message: fmt.Sprintf("the result has %d bytes, more than can be answered", t.ResultTooLarge)}
	default:
		return nil
	}
}

func rejectionOf(r *txn.Rejection) *rejectionJSON {
	if r == nil {
		return nil
	}
	return &rejectionJSON{SQLState: optional(r.SQLState), Constraint: optional(r.Constraint)}
}

// writeSubmitted answers a submitted transaction: 201, or 202 while its outcome is not known.
func writeSubmitted(w http.ResponseWriter, t *txn.Transaction) error {
	status := http.StatusCreated
	if t.State == txn.StateUnknown {
		status = http.StatusAccepted
	}
	if t.Replayed {
		setReplayed(w.Header())
	}
	w.Header().Set("Location", "/v1/transactions/"+url.PathEscape(t.ID))
	return writeTransaction(w, status, t)
}

// writeTransaction answers with any result. The encoder accepts no more than 10,000 levels, so a deeper result is put into the
// answer as PostgreSQL gave it.
func writeTransaction(w http.ResponseWriter, status int, t *txn.Transaction) error {
	out := encodable(t)
	err := writeJSON(w, status, typeJSON, out)
	if err == nil || out.Result == nil {
		return err
	}
	out.Result = nil
	rest, encodeErr := json.Marshal(out, lenient)
	if encodeErr != nil {
		return err
	}
	// No text before the name can hold its quotes unescaped.
	before, after, _ := bytes.Cut(rest, []byte(`"result":null`))
	write(w, status, typeJSON, slices.Concat(before, []byte(`"result":`), bytes.ToValidUTF8(t.Result, []byte("\ufffd")), after))
	return nil
}

// kindJSON is the schema Kind of openapi.yaml.
type kindJSON struct {
	Name      string         `json:"name"`
	Path      optional       `json:"path"`
	Topic     string         `json:"topic"`
	Tag       optional       `json:"tag"`
	Selector  string         `json:"selector"`
	Local     txn.Local      `json:"local"`
	HasSchema bool           `json:"has_schema"`
	Schema    jsontext.Value `json:"schema"`
	txn.Options
	ImmunityMS *int64 `json:"immunity_ms"`
	TimeoutMS  int64  `json:"timeout_ms"`
}

type kindsJSON struct {
	Items []kindJSON `json:"items"`
}

// encodeKinds returns the answer to GET /v1/kinds, which never changes.
func encodeKinds(kinds []*txn.Kind) ([]byte, error) {
	list := kindsJSON{Items: make([]kindJSON, 0, len(kinds))}
	for _, k := range kinds {
		item := kindJSON{
			Name: k.Name, Path: optional(k.Path), Topic: k.Topic, Tag: optional(k.Tag), Selector: k.Selector.Name(),
			Local: k.Local, HasSchema: k.Schema != nil, TimeoutMS: k.Timeout.Milliseconds(), Options: k.Options,
		}
		if k.Schema != nil {
			item.Schema = jsontext.Value(k.Schema.Document())
		}
		if k.Immunity > 0 {
			item.ImmunityMS = new(k.Immunity.Milliseconds())
		}
		list.Items = append(list.Items, item)
	}
	return json.Marshal(list)
}

// The media types of answers, as header values. They are shared, and must not be changed.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	typeYAML    = []string{"application/yaml"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
)

// setCommon sets the headers of every answer: no cache may store it, and no browser may guess its type.
func setCommon(header http.Header) {
	header["X-Content-Type-Options"] = noSniff
	header["Cache-Control"] = noStore
}

// setReplayed says that the answer repeats an earlier one. Bodies say so too, except those of rejections.
func setReplayed(header http.Header) { header.Set("Idempotency-Replayed", "true") }

// buffers hold answers while they are encoded, before the first byte is sent. They are reused.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptBuffer is the largest buffer that is retained for reuse, in bytes.
const maxKeptBuffer = 64 << 10

// lenient encodes everything that a database or a local transaction has put into an answer, because a refusal here would hide the
// transaction's outcome.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// writeJSON encodes v before it answers.
func writeJSON(w http.ResponseWriter, status int, contentType []string, v any) error {
	buffer := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool holds nothing else
	buffer.Reset()
	defer func() {
		if buffer.Cap() <= maxKeptBuffer {
			buffers.Put(buffer)
		}
	}()
	if err := json.MarshalWrite(buffer, v, lenient); err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	write(w, status, contentType, buffer.Bytes())
	return nil
}

// write answers. It ignores an error of Write, because the client is gone then.
func write(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	setCommon(header)
	header["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON or YAML, by its content type, which browsers are told not to guess (nosniff)
}
