package http

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// codeMethodNotAllowed is the one code that has no meaning outside of HTTP.
const codeMethodNotAllowed txn.Code = "method_not_allowed"

// answer is the form of a code in HTTP.
type answer struct {
	status int
	title  string
	code   txn.Code // the one that clients see instead; empty: the same
}

// answers is the one table from codes to answers. openapi.yaml lists the codes that clients see. To a POST
// of a transaction, a 503, like a 400, 413, 415 and 429, promises that this request has changed nothing and never will; see
// docs/guarantees.md.
var answers = map[txn.Code]answer{
	txn.CodeInvalidRequest:      {http.StatusBadRequest, "The request is not valid", ""},
	txn.CodeForbidden:           {http.StatusForbidden, "Forbidden", ""},
	txn.CodeNotFound:            {http.StatusNotFound, "Not found", ""},
	txn.CodeUnknownKind:         {http.StatusNotFound, "Unknown kind", ""},
	codeMethodNotAllowed:        {http.StatusMethodNotAllowed, "Method not allowed", ""},
	txn.CodeConflict:            {http.StatusConflict, "Conflict with another request", ""},
	txn.CodePayloadTooLarge:     {http.StatusRequestEntityTooLarge, "Payload too large", ""},
	txn.CodeUnsupportedMedia:    {http.StatusUnsupportedMediaType, "Unsupported media type", ""},
	txn.CodeRejected:            {http.StatusUnprocessableEntity, "Rejected by the local transaction", ""},
	txn.CodeIdempotencyMismatch: {http.StatusUnprocessableEntity, "Id used for another request", ""},
	txn.CodeOverloaded:          {http.StatusServiceUnavailable, "Overloaded", ""},
	txn.CodeKeyOverloaded:       {http.StatusTooManyRequests, "Overloaded", txn.CodeOverloaded},
	txn.CodeBrokerUnavailable:   {http.StatusServiceUnavailable, "Broker unavailable", ""},
	txn.CodeUnconfirmed:         {http.StatusGatewayTimeout, "Not confirmed by the broker", ""},
	txn.CodeDatabaseUnavailable: {http.StatusServiceUnavailable, "Database unavailable", ""},
	txn.CodeInternal:            {http.StatusInternalServerError, "Internal error", ""},
}

// problemJSON is the schema Problem of openapi.yaml (RFC 9457).
type problemJSON struct {
	Type      string           `json:"type"`
	Title     string           `json:"title"`
	Status    int              `json:"status"`
	Detail    string           `json:"detail"`
	Code      txn.Code         `json:"code"`
	RequestID string           `json:"request_id"`
	Errors    []fieldErrorJSON `json:"errors,omitempty"`
	Rejection *rejectionJSON   `json:"rejection,omitempty"`
	Final     *bool            `json:"final,omitempty"` // with rejected only
	// TransactionID is the id of the row that says the same.
	TransactionID string `json:"transaction_id,omitempty"`
	// MessageIDs are those of messages that may be stored.
	MessageIDs []string `json:"message_ids,omitempty"`
}

type fieldErrorJSON struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// internalError is the answer to an error that nobody foresaw. Only the log has the cause.
var internalError = txn.Errorf(txn.CodeInternal, "something went wrong here; the log has the cause under this request_id")

// fail answers with a problem document, and notes the error for the log.
func fail(w http.ResponseWriter, err error) {
	var id string
	if rec, ok := w.(*recorder); ok {
		rec.err, id = err, rec.requestID
	}
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code == txn.CodeInternal {
		e = internalError
	}
	answer, known := answers[e.Code]
	if !known {
		e, answer = internalError, answers[txn.CodeInternal]
	}
	code := e.Code
	if answer.code != "" {
		code = answer.code
	}
	if answer.status == http.StatusTooManyRequests || answer.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(e.RetryAfter))
	}
	if e.Replayed {
		setReplayed(w.Header())
	}
	problem := problemJSON{
		Type: "urn:txsvc:problem:" + string(code), Title: answer.title, Status: answer.status, Detail: clip(e.Detail),
		Code: code, RequestID: id, Errors: fieldErrors(e.Fields), Rejection: rejectionOf(e.Rejection),
		TransactionID: e.TransactionID, MessageIDs: e.MessageIDs,
	}
	if e.Code == txn.CodeRejected {
		problem.Final = &e.Final
	}
	if err := writeJSON(w, answer.status, typeProblem, problem); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// retryAfter returns whole seconds, rounded up and at least one: 0 would ask for a retry at once.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}

func fieldErrors(fields []txn.FieldError) []fieldErrorJSON {
	fields = fields[:min(len(fields), maxFieldErrors)]
	out := make([]fieldErrorJSON, 0, len(fields))
	for _, f := range fields {
		out = append(out, fieldErrorJSON{shorten(f.Pointer), clip(f.Message)})
	}
	return out
}

// maxRepeated is how many bytes of a request an answer repeats at most.
const maxRepeated = 1024

// clip cuts a text that is too long, between two characters.
func clip(text string) string {
	if len(text) <= maxRepeated {
		return text
	}
	return strings.ToValidUTF8(text[:maxRepeated], "") + "…"
}

// shorten returns the pointer, or that of the nearest enclosing value whose pointer is not too long.
func shorten(pointer string) string {
	for len(pointer) > maxRepeated {
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
	return pointer
}
