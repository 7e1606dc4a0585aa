package http_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestDomainErrors(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.7:5432: password=hunter2")
	for _, test := range []struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{txn.Invalid(txn.FieldError{Pointer: "/shard_key", Message: "is required"}), 400, "invalid_request", ""},
		{txn.Errorf(txn.CodeUnknownKind, "no kind"), 404, "unknown_kind", ""},
		{txn.Errorf(txn.CodeConflict, "still running"), 409, "conflict", ""},
		{txn.Errorf(txn.CodePayloadTooLarge, "too large"), 413, "payload_too_large", ""},
		{&txn.Error{Code: txn.CodeRejected, Detail: "no", Rejection: &txn.Rejection{Message: "no"}}, 422, "rejected", ""},
		{txn.Errorf(txn.CodeIdempotencyMismatch, "other content"), 422, "idempotency_mismatch", ""},
		{&txn.Error{Code: txn.CodeOverloaded, RetryAfter: 1500 * time.Millisecond, Cause: secret}, 503, "overloaded", "2"},
		{&txn.Error{Code: txn.CodeBrokerUnavailable, RetryAfter: 2 * time.Second, Cause: secret}, 503, "broker_unavailable", "2"},
		{fmt.Errorf("wrapped: %w", &txn.Error{Code: txn.CodeDatabaseUnavailable, Cause: secret}), 503, "database_unavailable", "1"},
		{&txn.Error{Code: txn.CodeInternal, Detail: "inner workings", Cause: secret}, 500, "internal", ""},
		{&txn.Error{Code: "invented", Detail: "inner workings", Cause: secret}, 500, "internal", ""},
		{secret, 500, "internal", ""},
	} {
		t.Run(test.code, func(t *testing.T) {
			h := setup(t)
			h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) { return nil, test.err }
			a := h.post("/v1/transactions", `{"kind":"order.create","shard_key":"acme","payload":{}}`)
			p := a.problem(test.status, test.code)
			wantHeader(t, a, "Retry-After", test.retryAfter)
			wantHeader(t, a, "Content-Type", "application/problem+json")
			wantHeader(t, a, "Location", "")
			if p.Type != "urn:txsvc:problem:"+test.code || p.Title == "" || p.RequestID != a.Header().Get("X-Request-Id") {
				t.Errorf("got type %q, title %q, request_id %q; want the code's URN, a title and the id of the header", p.Type, p.Title, p.RequestID)
			}
			for _, hidden := range []string{"hunter2", "inner workings", "10.0.0.7"} {
				if strings.Contains(a.Body.String(), hidden) {
					t.Errorf("the answer tells %q: %s", hidden, a.Body)
				}
			}
		})
	}
}

func TestRejectionTellsTheConstraint(t *testing.T) {
	h := setup(t)
	r := &txn.Rejection{Message: "the order exists", SQLState: "23505", Constraint: "orders_pkey"}
	h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) {
		return nil, &txn.Error{Code: txn.CodeRejected, Detail: r.Message, Rejection: r, Final: true, TransactionID: "o-1"}
	}
	a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	p := a.problem(http.StatusUnprocessableEntity, "rejected")
	if p.Detail != "the order exists" || p.Rejection == nil {
		t.Fatalf("got detail %q and rejection %v", p.Detail, p.Rejection)
	}
	if want := `"rejection":{"sqlstate":"23505","constraint":"orders_pkey"},"final":true,"transaction_id":"o-1"`; !strings.Contains(a.Body.String(), want) {
		t.Errorf("got %s, want it to have %s", a.Body, want)
	}
}

// A refusal that is not stored says so, and somebody learns of it.
func TestRejectionThatIsNotFinal(t *testing.T) {
	h := setup(t)
	h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) {
		return nil, txn.Refused(&txn.Rejection{Message: "a value does not fit", SQLState: "22003"}, errors.New("the cause"))
	}
	a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	if p := a.problem(http.StatusUnprocessableEntity, "rejected"); p.Detail != "a value does not fit; nothing was changed" {
		t.Errorf("got detail %q", p.Detail)
	}
	if !strings.Contains(a.Body.String(), `"final":false`) || strings.Contains(a.Body.String(), "the cause") {
		t.Errorf("got %s, want it to say that it is not final, and no cause", a.Body)
	}
	records := h.records()
	if len(records) != 1 || records[0]["level"] != "WARN" || records[0]["sqlstate"] != "22003" || !strings.Contains(fmt.Sprint(records[0]["error"]), "the cause") {
		t.Errorf("got log %v, want one warning with SQLSTATE and cause", records)
	}
}

// TestSharedErrorIsNotChanged: requests that wait for one with the same id get the very same error.
func TestSharedErrorIsNotChanged(t *testing.T) {
	shared := txn.Invalid(txn.FieldError{Pointer: "/id", Message: "is odd"}, txn.FieldError{Pointer: "/tag", Message: "is odd"})
	h := setup(t)
	h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) { return nil, shared }
	a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`, "Idempotency-Key", "k-1")
	wantFieldError(t, a, "/id", "the header Idempotency-Key is odd")
	wantFieldError(t, a, "/tag", "is odd")
	if got := shared.Fields[0].Message; got != "is odd" {
		t.Errorf("the domain's error was changed to %q", got)
	}
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	for _, test := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, "not_found", ""},
		{"GET", "/v1/transactions/", 404, "not_found", ""},
		{"POST", "/v1/transactions/", 404, "not_found", ""},
		{"GET", "/v1/transactions/a/b", 404, "not_found", ""},
		{"GET", "/healthz/", 404, "not_found", ""},
		{"BREW", "/coffee", 404, "not_found", ""},
		{"GET", "/v1/transactions", 405, "method_not_allowed", "POST"},
		{"DELETE", "/v1/orders", 405, "method_not_allowed", "POST"},
		{"OPTIONS", "/v1/orders", 405, "method_not_allowed", "POST"},
		{"BREW", "/v1/orders", 405, "method_not_allowed", "POST"},
		{"POST", "/v1/kinds", 405, "method_not_allowed", "GET, HEAD"},
		{"PUT", "/v1/transactions/o-1", 405, "method_not_allowed", "GET, HEAD"},
		{"PUT", "/v1/transactions/a%2Fb", 405, "method_not_allowed", "GET, HEAD"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			a := setup(t).serve(httptest.NewRequest(test.method, test.path, nil))
			a.problem(test.status, test.code)
			wantHeader(t, a, "Allow", test.allow)
		})
	}
}

func TestHead(t *testing.T) {
	setup(t).serve(httptest.NewRequest(http.MethodHead, "/healthz", nil)).want(http.StatusOK)
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	h := setup(t)
	h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) { panic("out of cheese") }
	a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	a.problem(http.StatusInternalServerError, "internal")
	if strings.Contains(a.Body.String(), "cheese") {
		t.Errorf("the answer tells the panic: %s", a.Body)
	}
	records := h.records()
	if len(records) != 1 || !strings.Contains(fmt.Sprint(records[0]["error"]), "cheese") || !strings.Contains(fmt.Sprint(records[0]["error"]), "errors_test.go") {
		t.Errorf("got log %v, want one record with the panic and its stack", records)
	}
}

// TestPanicAfterTheHeader: half an answer must not look whole, so the connection is cut.
func TestPanicAfterTheHeader(t *testing.T) {
	h := setup(t)
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			t.Errorf("got panic %v, want http.ErrAbortHandler", got)
		}
		if records := h.records(); len(records) != 1 || records[0]["status"] != float64(500) || records[0]["level"] != "ERROR" {
			t.Errorf("got log %v, want one record with status 500", records)
		}
	}()
	h.handler.ServeHTTP(failingWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/healthz", nil))
}

// failingWriter panics once the header is written.
type failingWriter struct{ http.ResponseWriter }

func (failingWriter) Write([]byte) (int, error) { panic("writing") }
