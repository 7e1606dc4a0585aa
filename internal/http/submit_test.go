package http_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestRequestReachesTheFlowAsSent(t *testing.T) {
	payload := "{ \"b\" : 1.50e+01,\t\"a\":[1 , 2],\n \"\\u0063\": \"\\/ü\" , \"big\": 12345678901234567890.0 }"
	h := setup(t)
	h.post("/v1/transactions", `{"payload": `+payload+` , "kind":"order.create","shard_key":"\u0061cme","id":"o-1",
		"selector_arg": {"id" : 3 }, "local_arg": null, "tag":"t", "keys":["k1","k\"2"], "properties":{"p":"v","":"x"}}`,
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").want(http.StatusCreated)
	want := []txn.Request{{
		Kind: "order.create", ID: "o-1", ShardKey: "acme", Payload: json.RawMessage(payload),
		SelectorArg: json.RawMessage(`{"id" : 3 }`), LocalArg: json.RawMessage(`null`), Tag: "t",
		Keys: []string{"k1", `k"2`}, Properties: map[string]string{"p": "v", "": "x"},
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}}
	if diff := cmp.Diff(want, h.requests); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// TestNullIsAsGoodAsNothing: many clients write null for what is not set.
func TestNullIsAsGoodAsNothing(t *testing.T) {
	h := setup(t)
	h.post("/v1/orders", `{"shard_key":"acme","payload":null,"tag":null,"keys":null,"properties":null}`).want(http.StatusCreated)
	want := []txn.Request{{Kind: "order.create", ShardKey: "acme", Payload: json.RawMessage(`null`)}}
	if diff := cmp.Diff(want, h.requests); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	h.post("/v1/orders", `{"shard_key":"acme","payload":1,"tag":nul}`).problem(http.StatusBadRequest, "invalid_request")
}

func TestKindOfThePath(t *testing.T) {
	h := setup(t)
	h.post("/v1/orders", `{"shard_key":"acme","payload":0}`).want(http.StatusCreated)
	want := []txn.Request{{Kind: "order.create", ShardKey: "acme", Payload: json.RawMessage(`0`)}}
	if diff := cmp.Diff(want, h.requests); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestEscapedFieldName(t *testing.T) {
	h := setup(t)
	h.post("/v1/orders", `{"shar\u0064_key":"acme","payload":0}`).want(http.StatusCreated)
	if got := h.requests[0].ShardKey; got != "acme" {
		t.Errorf("got shard key %q, want acme", got)
	}
}

func TestAnswers(t *testing.T) {
	order := txn.Request{ID: "o/1 ?", Kind: "order.create", ShardKey: "acme"}
	order.ID = "o/1?%"
	unknown := &txn.Transaction{ID: "u", Kind: "order.create", State: txn.StateUnknown, Delivery: txn.DeliveryNone, ShardKey: "acme", CreatedAt: time.Unix(1, 0)}
	rejected := delivered(order)
	rejected.State, rejected.Delivery, rejected.Result, rejected.DeliveredAt = txn.StateRolledBack, txn.DeliveryNone, nil, time.Time{}
	rejected.Rejection = &txn.Rejection{Message: "the order exists", SQLState: "23505", Constraint: "orders_pkey"}
	abandoned := &txn.Transaction{ID: "a", Kind: "order.create", State: txn.StateCommitted, Delivery: txn.DeliveryNone, Abandoned: true}
	replayed := delivered(order)
	replayed.Replayed, replayed.Tag = true, ""

	head := `{"id":"o/1?%","kind":"order.create","state":`
	route := `"queue":{"broker":"broker-a","id":3},"message_id":"7F0000010A2C18B4AAC27E5D1F3C0001","route":{"selector":"hash","lane":null,"reason":"fnv1a64(shard_key) mod 8 = 3"},`
	times := `"created_at":"2024-05-17T09:30:00.104211Z","decided_at":"2024-05-17T09:30:00.105211Z",`
	for _, test := range []struct {
		name     string
		t        *txn.Transaction
		status   int // of the POST
		location string
		body     string
	}{
		{"delivered", delivered(order), 201, "/v1/transactions/o%2F1%3F%25", head + `"committed","delivery":"delivered","shard_key":"acme","topic":"orders","tag":"created",` + route +
			`"result":{"total_minor":12.50},"error":null,` + times + `"delivered_at":"2024-05-17T09:30:00.106211Z","expires_at":null,"replayed":false}`},
		{"replayed", replayed, 201, "/v1/transactions/o%2F1%3F%25", head + `"committed","delivery":"delivered","shard_key":"acme","topic":"orders","tag":null,` + route +
			`"result":{"total_minor":12.50},"error":null,` + times + `"delivered_at":"2024-05-17T09:30:00.106211Z","expires_at":null,"replayed":true}`},
		{"unknown", unknown, 202, "/v1/transactions/u", `{"id":"u","kind":"order.create","state":"unknown","delivery":"none","shard_key":"acme","topic":null,"tag":null,"queue":null,"message_id":null,` +
			`"route":null,"result":null,"error":null,"created_at":"1970-01-01T00:00:01.000000Z","decided_at":null,"delivered_at":null,"expires_at":null,"replayed":false}`},
		{"rejected", rejected, 0, "", head + `"rolled_back","delivery":"none","shard_key":"acme","topic":"orders","tag":"created",` + route +
			`"result":null,"error":{"code":"rejected","message":"the order exists","rejection":{"sqlstate":"23505","constraint":"orders_pkey"}},` + times + `"delivered_at":null,"expires_at":null,"replayed":false}`},
		{"abandoned", abandoned, 0, "", `{"id":"a","kind":"order.create","state":"rolled_back","delivery":"none","shard_key":null,"topic":null,"tag":null,"queue":null,"message_id":null,` +
			`"route":null,"result":null,"error":{"code":"abandoned","message":"the request ended before its local transaction committed, and nothing was changed; its id may be used again","rejection":null},` +
			`"created_at":null,"decided_at":null,"delivered_at":null,"expires_at":null,"replayed":false}`},
		{"delayed", pending(false), 201, "/v1/transactions/p", pendingBody(`{"code":"delayed","message":"the broker is busy","rejection":null}`)},
		{"undeliverable", pending(true), 201, "/v1/transactions/p", pendingBody(`{"code":"undeliverable","message":"the broker is busy","rejection":null}`)},
		{"nothing but the id", &txn.Transaction{ID: "x", State: txn.StateUnknown, Delivery: txn.DeliveryNone}, 0, "", `{"id":"x","kind":null,"state":"unknown","delivery":"none","shard_key":null,"topic":null,` +
			`"tag":null,"queue":null,"message_id":null,"route":null,"result":null,"error":null,"created_at":null,"decided_at":null,"delivered_at":null,"expires_at":null,"replayed":false}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) { return test.t, nil }
			h.flow.get = func(context.Context, string) (*txn.Transaction, error) { return test.t, nil }
			if test.status != 0 {
				a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`).want(test.status)
				wantHeader(t, a, "Location", test.location)
				wantBody(t, a, test.body)
			}
			wantBody(t, h.get("/v1/transactions/x").want(http.StatusOK), test.body)
		})
	}
}

// pending is a committed transaction that something keeps from being delivered.
func pending(parked bool) *txn.Transaction {
	return &txn.Transaction{
		ID: "p", Kind: "k", State: txn.StateCommitted, Delivery: txn.DeliveryPending, ShardKey: "acme", Topic: "t",
		PendingReason: "the broker is busy", Parked: parked,
	}
}

func pendingBody(failure string) string {
	return `{"id":"p","kind":"k","state":"committed","delivery":"pending","shard_key":"acme","topic":"t","tag":null,"queue":null,"message_id":null,` +
		`"route":null,"result":null,"error":` + failure + `,"created_at":null,"decided_at":null,"delivered_at":null,"expires_at":null,"replayed":false}`
}

func wantBody(t *testing.T, a *answer, want string) {
	t.Helper()
	if got := a.Body.String(); got != want {
		t.Errorf("got body\n%s, want\n%s", got, want)
	}
	wantHeader(t, a, "Content-Type", "application/json")
	wantHeader(t, a, "X-Content-Type-Options", "nosniff")
	wantHeader(t, a, "Cache-Control", "no-store")
}

func wantHeader(t *testing.T, a *answer, name, want string) {
	t.Helper()
	if got := a.Header().Get(name); got != want {
		t.Errorf("got header %s %q, want %q", name, got, want)
	}
}

// TestGetByID also follows what Location says: every id that can exist can be asked for.
func TestGetByID(t *testing.T) {
	for _, test := range []struct{ path, want string }{
		{"/v1/transactions/o-1", "o-1"},
		{"/v1/transactions/a%2Fb", "a/b"},
		{"/v1/transactions/a%2Fb%2541", "a/b%41"},
		{"/v1/transactions/a%2541", "a%41"},
		{"/v1/transactions/a%41", "aA"},
		{"/v1/transactions/" + strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"/v1/transactions/" + strings.Repeat("x", 256), ""},
		{"/v1/transactions/a%20b", ""},
		{"/v1/transactions/a%00", ""},
		{"/v1/transactions/%FF", ""},
		{"/v1/transactions/%C3%BC", ""},
	} {
		t.Run(test.path, func(t *testing.T) {
			h := setup(t)
			var asked string
			h.flow.get = func(_ context.Context, id string) (*txn.Transaction, error) {
				asked = id
				return delivered(txn.Request{ID: id, Kind: "order.create"}), nil
			}
			a := h.get(test.path)
			if asked != test.want {
				t.Errorf("got asked for %q, want %q", asked, test.want)
			}
			if test.want == "" {
				a.problem(http.StatusNotFound, "not_found")
			}
		})
	}
}

func TestIdempotencyKey(t *testing.T) {
	const body = `{"shard_key":"acme","payload":{}}`
	const withID = `{"shard_key":"acme","payload":{},"id":"o-1"}`
	const notQuoted = "the header Idempotency-Key begins with a quote and is not a string of RFC 9651, section 3.3.3"
	for _, test := range []struct {
		name, body, key string
		want            string // id that reaches the flow, or
		message         string // of the error at /id
	}{
		{"only the header", body, "k-1", "k-1", ""},
		{"both equal", withID, "o-1", "o-1", ""},
		{"both differ", withID, "k-1", "", "differs from the header Idempotency-Key"},
		{"quoted", body, `"k-1"`, "k-1", ""},
		{"quoted, with escapes", body, `"k\"\\1"`, `k"\1`, ""},
		{"quoted, and equal", withID, `"o-1"`, "o-1", ""},
		{"quoted, and differs", withID, `"k-1"`, "", "differs from the header Idempotency-Key"},
		{"quotes within", body, `k"1"`, `k"1"`, ""},
		{"quoted and empty", body, `""`, "", "the header Idempotency-Key must not be empty"},
		{"no closing quote", body, `"k-1`, "", notQuoted},
		{"something behind the quote", body, `"k-1";p=1`, "", notQuoted},
		{"unknown escape", body, `"k\n"`, "", notQuoted},
		{"escape at the end", body, `"k\`, "", notQuoted},
		{"not ASCII", body, `"kü"`, "", notQuoted},
		{"empty header", body, "", "", "the header Idempotency-Key must not be empty"},
		{"the domain refuses it", body, "a b", "", "the header Idempotency-Key must be printable ASCII without spaces; character 2 is not"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			accept := h.flow.submit
			h.flow.submit = func(ctx context.Context, r txn.Request) (*txn.Transaction, error) {
				if strings.Contains(r.ID, " ") {
					return nil, txn.Invalid(txn.FieldError{Pointer: "/id", Message: "must be printable ASCII without spaces; character 2 is not"})
				}
				return accept(ctx, r)
			}
			a := h.post("/v1/orders", test.body, "Idempotency-Key", test.key)
			if test.message != "" {
				wantFieldError(t, a, "/id", test.message)
				return
			}
			a.want(http.StatusCreated)
			if got := h.requests[0].ID; got != test.want {
				t.Errorf("got id %q, want %q", got, test.want)
			}
		})
	}
}

func wantFieldError(t *testing.T, a *answer, pointer, message string) {
	t.Helper()
	p := a.problem(http.StatusBadRequest, "invalid_request")
	for _, e := range p.Errors {
		if e.Pointer == pointer && e.Message == message {
			return
		}
	}
	t.Errorf("got errors %q, want one at %q: %s", p.Errors, pointer, message)
}

func TestTraceparent(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const valid = "00-" + trace + "-" + parent + "-01"
	for _, test := range []struct{ name, header, want string }{
		{"valid", valid, valid},
		{"later version", "cc-" + trace + "-" + parent + "-01-what-comes-later", valid},
		{"later version of the same length", "01-" + trace + "-" + parent + "-01", valid},
		{"version 00 with more", valid + "-more", ""},
		{"later version with another separator", "cc-" + trace + "-" + parent + "-01.x", ""},
		{"version ff", "ff-" + trace + "-" + parent + "-01", ""},
		{"upper case", "00-" + strings.ToUpper(trace) + "-" + parent + "-01", ""},
		{"zero trace", "00-" + strings.Repeat("0", 32) + "-" + parent + "-01", ""},
		{"zero parent", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01", ""},
		{"short", valid[:54], ""},
		{"separator missing", strings.Replace(valid, "-00f", "a00f", 1), ""},
		{"no hex inside", strings.Replace(valid, "3577", "35g7", 1), ""},
		{"empty", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`, "traceparent", test.header).want(http.StatusCreated)
			if got := h.requests[0].Traceparent; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
