package txn

import (
	"errors"
	"fmt"
	"time"
)

// Code is the stable, snake_case name of an error. Clients see it, but for CodeKeyOverloaded; see openapi.yaml.
type Code string

// The codes of the API.
const (
	CodeInvalidRequest      Code = "invalid_request"
	CodeForbidden           Code = "forbidden"
	CodeNotFound            Code = "not_found"
	CodeUnknownKind         Code = "unknown_kind"
	CodeConflict            Code = "conflict"
	CodePayloadTooLarge     Code = "payload_too_large"
	CodeUnsupportedMedia    Code = "unsupported_media_type"
	CodeRejected            Code = "rejected"
	CodeIdempotencyMismatch Code = "idempotency_mismatch"
	CodeOverloaded          Code = "overloaded"
	CodeKeyOverloaded       Code = "key_overloaded" // not the service is overloaded but one shard key; clients see "overloaded"
	CodeBrokerUnavailable   Code = "broker_unavailable"
	CodeUnconfirmed         Code = "unconfirmed"
	CodeDatabaseUnavailable Code = "database_unavailable"
	CodeInternal            Code = "internal"
)

// FieldError is a mistake in one field of the request, which it names by an RFC 6901 JSON Pointer.
type FieldError struct {
	Pointer string
	Message string
}

// Error is an error with a code. Detail is safe to show to a client: it holds no payload, secret or address; the cause
// is for the log only.
type Error struct {
	Code      Code
	Detail    string
	Fields    []FieldError
	Rejection *Rejection
	// Final, with CodeRejected: the refusal is stored, and the same id gets the same answer.
	Final bool
	// TransactionID is set where a row says the same, so that a client that gave no id can ask for it.
	TransactionID string
	// Replayed: an earlier request with the same id got this answer; nothing was done.
	Replayed bool
	// MessageIDs are set where messages may be stored without the broker's having said so, so that a client can look for them.
	MessageIDs []string
	RetryAfter time.Duration // 0: none
	Cause      error
}

// Error returns code and detail, with the cause where there is one.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an Error without a cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Refused returns a rejected error that is not stored: the id may be tried again.
func Refused(r *Rejection, cause error) *Error {
	return &Error{Code: CodeRejected, Detail: r.Message + "; nothing was changed", Rejection: r, Cause: cause}
}

// decided reports whether the error is the final answer of an id.
func decided(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == CodeRejected && e.Final
}

// Invalid returns an invalid_request error for the given fields.
func Invalid(fields ...FieldError) *Error {
	detail := "the request is not valid"
	if len(fields) == 1 {
		detail = fields[0].Message
		if fields[0].Pointer != "" {
			detail = fields[0].Pointer + ": " + detail
		}
	}
	return &Error{Code: CodeInvalidRequest, Detail: detail, Fields: fields}
}

// CodeOf returns the code of the first Error in err's tree, or CodeInternal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// ErrNotFound is returned by Store.Find when there is no row with the id.
var ErrNotFound = errors.New("no such transaction")

// BrokerUnavailable returns the error for a broker or topic that cannot be used now.
func BrokerUnavailable(cause error, format string, args ...any) *Error {
	return &Error{Code: CodeBrokerUnavailable, Detail: fmt.Sprintf(format, args...), RetryAfter: RetryAfter, Cause: cause}
}

// DatabaseUnavailable returns the error for a database that cannot be used now.
func DatabaseUnavailable(cause error, format string, args ...any) *Error {
	return &Error{Code: CodeDatabaseUnavailable, Detail: fmt.Sprintf(format, args...), RetryAfter: RetryAfter, Cause: cause}
}

// noAnswer is what a failed statement of the Store comes to: what the Store itself says of the database, where it does.
func noAnswer(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeDatabaseUnavailable {
		return DatabaseUnavailable(err, "%s", e.Detail)
	}
	return DatabaseUnavailable(err, "the database did not answer")
}
