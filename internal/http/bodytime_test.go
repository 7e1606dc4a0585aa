package http_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// TestBodyHasItsOwnTime: a slow body is refused before it uses up the time of the answer, and that its time is over is not
// taken for the client's hanging up.
func TestBodyHasItsOwnTime(t *testing.T) {
	h := setup(t)
	config := h.config()
	config.Timing.BodyWithin = 50 * time.Millisecond
	config.Registerer = prometheus.NewRegistry()
	h.flow.submit = func(ctx context.Context, r txn.Request) (*txn.Transaction, error) {
		select {
		case <-ctx.Done():
			return nil, txn.Errorf(txn.CodeConflict, "cancelled")
		case <-time.After(3 * config.Timing.BodyWithin):
			return delivered(r), nil
		}
	}
	server := httptest.NewServer(newHandler(t, config))
	defer server.Close()
	server.Client().Timeout = 10 * time.Second

	const all = `{"shard_key":"acme","payload":{}}`
	response, err := server.Client().Post(server.URL+"/v1/orders", "application/json", strings.NewReader(all)) //nolint:noctx // a test
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("a request that takes longer than bodies may: got %v, %v, want 201", response, err)
	}
	response.Body.Close()

	body, rest := io.Pipe()
	defer rest.Close()
	go func() { _, _ = fmt.Fprint(rest, all[:10]) }()
	response, err = server.Client().Post(server.URL+"/v1/orders", "application/json", body) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	problem, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusBadRequest || !strings.Contains(string(problem), "did not arrive in time") {
		t.Errorf("a body that does not come: got %d %s, want 400", response.StatusCode, problem)
	}
}
