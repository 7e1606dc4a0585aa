package http

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

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
	return enc.WriteValue(appendInstant(enc.AvailableBuffer(), time.Time(*i)))
}

// appendTransaction appends the schema Transaction of openapi.yaml. Every field is always there, null when it is not set. It
// is written by hand because every request needs it: json.Marshal takes four times as long.
func appendTransaction(b []byte, t *txn.Transaction) []byte {
	state := t.State
	if t.Abandoned {
		state = txn.StateRolledBack
	}
	b = appendText(append(b, `{"id":`...), t.ID)
	b = appendOptional(append(b, `,"kind":`...), t.Kind)
	b = appendText(append(b, `,"state":`...), string(state))
	b = appendText(append(b, `,"delivery":`...), string(t.Delivery))
	b = appendOptional(append(b, `,"shard_key":`...), t.ShardKey)
	b = appendOptional(append(b, `,"topic":`...), t.Topic)
	b = appendOptional(append(b, `,"tag":`...), t.Tag)
	b = appendQueue(append(b, `,"queue":`...), t.Route.Queue)
	b = appendOptional(append(b, `,"message_id":`...), t.MessageID)
	b = appendRoute(append(b, `,"route":`...), &t.Route)
	b = appendResult(append(b, `,"result":`...), t.Result)
	b = appendFailure(append(b, `,"error":`...), failureOf(t))
	b = appendInstant(append(b, `,"created_at":`...), t.CreatedAt)
	b = appendInstant(append(b, `,"decided_at":`...), t.DecidedAt)
	b = appendInstant(append(b, `,"delivered_at":`...), t.DeliveredAt)
	b = appendInstant(append(b, `,"expires_at":`...), t.ExpiresAt)
	b = strconv.AppendBool(append(b, `,"replayed":`...), t.Replayed)
	return append(b, '}')
}

func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b, _ = jsontext.AppendQuote(b, text) // what is not UTF-8 becomes the replacement character
			return b
		}
	}
	b = append(append(b, '"'), text...)
	return append(b, '"')
}

// appendOptional appends null for an empty text.
func appendOptional(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	return appendText(b, text)
}

// appendQueue appends null for a queue that was not chosen, and so does appendRoute for its route.
func appendQueue(b []byte, q txn.Queue) []byte {
	if q.Broker == "" {
		return append(b, "null"...)
	}
	b = appendText(append(b, `{"broker":`...), q.Broker)
	b = strconv.AppendInt(append(b, `,"id":`...), int64(q.ID), 10)
	return append(b, '}')
}

func appendRoute(b []byte, r *txn.Route) []byte {
	if r.Queue.Broker == "" {
		return append(b, "null"...)
	}
	b = appendText(append(b, `{"selector":`...), r.Selector)
	b = appendOptional(append(b, `,"lane":`...), r.Lane)
	b = appendText(append(b, `,"reason":`...), r.Reason)
	return append(b, '}')
}

// appendResult appends any result, because a refusal here would hide the transaction's outcome. jsontext accepts no more than
// 10,000 levels, so a deeper result is appended as PostgreSQL gave it.
func appendResult(b, result []byte) []byte {
	if result == nil {
		return append(b, "null"...)
	}
	formatted, err := jsontext.AppendFormat(b, result, lenient)
	if err != nil {
		return append(b, bytes.ToValidUTF8(result, []byte("\ufffd"))...)
	}
	return formatted
}

func appendFailure(b []byte, f *failureJSON) []byte {
	if f == nil {
		return append(b, "null"...)
	}
	encoded, _ := json.Marshal(f, lenient) // strings only: cannot fail
	return append(b, encoded...)
}

func appendInstant(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	b = appendDigits(append(b, '"'), year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	b = appendDigits(append(b, '.'), t.Nanosecond()/1000, 6)
	return append(b, 'Z', '"')
}

// appendDigits appends the last digits of n, with zeros before it.
func appendDigits(b []byte, n, digits int) []byte {
	b = append(b, "000000"[:digits]...)
	for i := len(b) - 1; n > 0 && digits > 0; i, n, digits = i-1, n/10, digits-1 {
		b[i] = byte('0' + n%10)
	}
	return b
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
func writeSubmitted(w http.ResponseWriter, t *txn.Transaction) {
	status := http.StatusCreated
	if t.State == txn.StateUnknown {
		status = http.StatusAccepted
	}
	if t.Replayed {
		setReplayed(w.Header())
	}
	w.Header().Set("Location", "/v1/transactions/"+url.PathEscape(t.ID))
	writeTransaction(w, status, t)
}

func writeTransaction(w http.ResponseWriter, status int, t *txn.Transaction) {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	buffer.Grow(usualAnswer + len(t.Result))
	write(w, status, typeJSON, appendTransaction(buffer.AvailableBuffer(), t))
}

// usualAnswer is more than most transactions take in an answer, without their results, in bytes.
const usualAnswer = 1 << 10

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

func takeBuffer() *bytes.Buffer {
	buffer := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool holds nothing else
	buffer.Reset()
	return buffer
}

func giveBuffer(buffer *bytes.Buffer) {
	if buffer.Cap() <= maxKeptBuffer {
		buffers.Put(buffer)
	}
}

// maxKeptBuffer is the largest buffer that is retained for reuse, in bytes.
const maxKeptBuffer = 64 << 10

// lenient encodes everything that a database or a local transaction has put into an answer, because a refusal here would hide the
// transaction's outcome.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// writeJSON encodes v before it answers.
func writeJSON(w http.ResponseWriter, status int, contentType []string, v any) error {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
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
