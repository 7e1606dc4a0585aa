package http_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// TestRequestsDoNotMix: what is reused between requests must not carry anything over, and a payload stays as it is after
// its request has been answered.
func TestRequestsDoNotMix(t *testing.T) {
	h := setup(t)
	var mu sync.Mutex
	kept := map[string]json.RawMessage{}
	h.flow.submit = func(_ context.Context, r txn.Request) (*txn.Transaction, error) {
		mu.Lock()
		defer mu.Unlock()
		kept[r.ID] = r.Payload
		return delivered(r), nil
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				id := fmt.Sprintf("o-%d-%d", i, j)
				w := httptest.NewRecorder()
				h.handler.ServeHTTP(w, newRequest("/v1/orders", `{"payload":`+payloadOf(id)+`,"shard_key":"acme","id":"`+id+`"}`))
				if want := `{"id":"` + id + `"`; w.Code != http.StatusCreated || !strings.HasPrefix(w.Body.String(), want) {
					t.Errorf("got %d %.80s, want 201 %s…", w.Code, w.Body, want)
				}
			}
		})
	}
	wg.Wait()
	for id, payload := range kept {
		if string(payload) != payloadOf(id) {
			t.Errorf("got payload %.80s for %s", payload, id)
		}
	}
}

// payloadOf returns a payload that differs from id to id, in size too.
func payloadOf(id string) string {
	return `{ "` + id + `": "` + strings.Repeat(id, len(id)*7%5+1) + `" }`
}
