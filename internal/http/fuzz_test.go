package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// FuzzBody: whatever is sent is carried out or refused with its place, never a failure of ours; and what is carried out is
// JSON for other readers too, with the payload as it stands in the body.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"order.create","shard_key":"acme","payload":{"a":[1.0e5,null]}}`,
		`{"kind":"k","shard_key":"\u0061\ud83d\ude00","payload":"\\","keys":["a"],"properties":{"a/b":"c"},"id":"i","tag":"t"}`,
		`{"kind":"k","payload":{"a":1,"a":2}}`, `{"payload":`, `[]`, ``, "\xff", `{"keys":[[[`, `{"id":"","x":1}`, `{"k":1}{`,
	} {
		f.Add([]byte(seed))
	}
	h := setup(f)
	var got *txn.Request
	h.flow.submit = func(_ context.Context, r txn.Request) (*txn.Transaction, error) {
		got = &r
		return delivered(r), nil
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got = nil
		r := httptest.NewRequest(http.MethodPost, "/v1/transactions", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, r)
		switch {
		case w.Code == http.StatusCreated:
			checkCarriedOut(t, body, got)
		case w.Code == http.StatusBadRequest && got == nil:
			checkRefused(t, w.Body.Bytes())
		default:
			t.Errorf("got status %d, reached the flow: %t", w.Code, got != nil)
		}
	})
}

func checkCarriedOut(t *testing.T, body []byte, r *txn.Request) {
	t.Helper()
	var other map[string]json.RawMessage
	if err := json.Unmarshal(body, &other); err != nil {
		t.Fatalf("encoding/json refuses what was carried out: %v", err)
	}
	if r.Payload != nil && !bytes.Equal(r.Payload, other["payload"]) {
		t.Errorf("got payload %q, want %q", r.Payload, other["payload"])
	}
	var key string
	if err := json.Unmarshal(other["shard_key"], &key); r.ShardKey != "" && (err != nil || key != r.ShardKey) {
		t.Errorf("got shard key %q, want %q (%v)", r.ShardKey, key, err)
	}
}

func checkRefused(t *testing.T, answer []byte) {
	t.Helper()
	var p problem
	if err := json.Unmarshal(answer, &p); err != nil || p.Code != "invalid_request" || len(p.Errors) == 0 {
		t.Fatalf("got %s, want a problem document that says what is wrong (%v)", answer, err)
	}
	for _, e := range p.Errors {
		if !jsontext.Pointer(e.Pointer).IsValid() || e.Message == "" {
			t.Errorf("got pointer %q and message %q", e.Pointer, e.Message)
		}
	}
}
