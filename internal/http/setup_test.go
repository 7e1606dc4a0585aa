package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	httpapi "github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transactions stands in for the flow: what it does is the test's.
type transactions struct {
	submit func(context.Context, txn.Request) (*txn.Transaction, error)
	get    func(context.Context, string) (*txn.Transaction, error)

	redeliver func(id string) (*txn.Transaction, error)
}

func (f *transactions) Submit(ctx context.Context, r txn.Request) (*txn.Transaction, error) {
	return f.submit(ctx, r)
}

func (f *transactions) Get(ctx context.Context, id string) (*txn.Transaction, error) {
	return f.get(ctx, id)
}

func (f *transactions) Redeliver(_ context.Context, id string) (*txn.Transaction, error) {
	return f.redeliver(id)
}

// routes stands in for routing.
type routes struct {
	preview func(txn.RouteQuery) (txn.RoutePreview, error)
	topic   func(string) (txn.TopicQueues, error)
}

func (f *routes) Preview(_ context.Context, q txn.RouteQuery) (txn.RoutePreview, error) {
	return f.preview(q)
}

func (f *routes) TopicQueues(_ context.Context, topic string) (txn.TopicQueues, error) {
	return f.topic(topic)
}

type readiness func(context.Context) []httpapi.Check

func (f readiness) Ready(ctx context.Context) []httpapi.Check { return f(ctx) }

type hash struct{}

func (hash) Name() string { return "hash" }
func (hash) Select([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
	return txn.Route{}, nil
}

// shippedKinds has one kind with the path that openapi.yaml shows, and one without a path.
func shippedKinds() []*txn.Kind {
	large := txn.DefaultOptions()
	large.ResultLimit = 4 << 20
	return []*txn.Kind{
		{Name: "order.create", Path: "/v1/orders", Destination: txn.Destination{Topic: "orders", Selector: hash{}}, Tag: "created", Local: txn.LocalHandler, Timeout: 5 * time.Second, Options: txn.DefaultOptions()},
		{Name: "payment.capture", Destination: txn.Destination{Topic: "payments", Selector: hash{}}, Local: txn.LocalSQL, Timeout: time.Minute, Immunity: 10 * time.Second, Options: large},
	}
}

// harness is an API with everything around it in the test's hands. All that goes through serve is checked against
// openapi.yaml.
type harness struct {
	t        testing.TB
	handler  http.Handler
	flow     *transactions
	routes   *routes
	messages *sender
	checks   []httpapi.Check
	registry *prometheus.Registry
	log      *lockedBuffer
	requests []txn.Request // that reached the flow
}

func setup(t testing.TB) *harness {
	t.Helper()
	h := &harness{t: t, registry: prometheus.NewRegistry(), log: &lockedBuffer{}, flow: &transactions{}, routes: &routes{}, messages: &sender{}}
	h.flow.submit = func(_ context.Context, r txn.Request) (*txn.Transaction, error) {
		r.Header = nil // functions do not compare
		h.requests = append(h.requests, r)
		return delivered(r), nil
	}
	h.flow.get = func(_ context.Context, id string) (*txn.Transaction, error) {
		return delivered(txn.Request{ID: id, Kind: "order.create", ShardKey: "acme"}), nil
	}
	h.handler = newHandler(t, h.config())
	return h
}

func (h *harness) config() httpapi.Config {
	return httpapi.Config{
		Transactions: h.flow,
		Routes:       h.routes,
		Messages:     h.messages,
		Readiness:    readiness(func(context.Context) []httpapi.Check { return h.checks }),
		Kinds:        shippedKinds(),
		Timing:       txn.DefaultTiming(),
		OpenAPI:      openAPI(),
		Gatherer:     h.registry,
		Registerer:   h.registry,
		Log:          slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func newHandler(t testing.TB, config httpapi.Config) http.Handler {
	t.Helper()
	handler, err := httpapi.New(config)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return handler
}

// serve answers a request, and checks both against openapi.yaml.
func (h *harness) serve(r *http.Request) *answer {
	h.t.Helper()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	a := &answer{t: h.t, ResponseRecorder: w}
	contract().check(h.t, r, body, a)
	return a
}

// post posts JSON; headers are names and values in turn.
func (h *harness) post(path, body string, headers ...string) *answer {
	h.t.Helper()
	r := newRequest(path, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return h.serve(r)
}

func newRequest(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (h *harness) get(path string) *answer {
	h.t.Helper()
	return h.serve(httptest.NewRequest(http.MethodGet, path, nil))
}

// answer is a recorded answer.
type answer struct {
	*httptest.ResponseRecorder
	t testing.TB
}

// problem is a problem document as clients read it.
type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	RequestID                 string `json:"request_id"`
	Errors                    []struct{ Pointer, Message string }
	Rejection                 *struct{ SQLState, Constraint *string }
}

func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.Code != status {
		a.t.Fatalf("got status %d, want %d; body %s", a.Code, status, a.Body)
	}
	return a
}

func (a *answer) problem(status int, code string) problem {
	a.t.Helper()
	a.want(status)
	var p problem
	if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil {
		a.t.Fatalf("problem document: %v; body %s", err, a.Body)
	}
	if p.Code != code || p.Status != status {
		a.t.Fatalf("got code %q and status %d, want %q and %d", p.Code, p.Status, code, status)
	}
	return p
}

// delivered is a committed transaction whose message is visible.
func delivered(r txn.Request) *txn.Transaction {
	id := r.ID
	if id == "" {
		id = "0190163d-8694-739b-aea5-966c26f8ad91"
	}
	at := time.Date(2024, 5, 17, 11, 30, 0, 104211999, time.FixedZone("CEST", 7200))
	return &txn.Transaction{
		ID: id, Kind: r.Kind, State: txn.StateCommitted, Delivery: txn.DeliveryDelivered, ShardKey: r.ShardKey,
		Topic: "orders", Tag: "created", MessageID: "7F0000010A2C18B4AAC27E5D1F3C0001",
		Route:  txn.Route{Queue: txn.Queue{Broker: "broker-a", ID: 3}, Selector: "hash", Reason: "fnv1a64(shard_key) mod 8 = 3"},
		Result: json.RawMessage(`{"total_minor": 12.50}`), CreatedAt: at, DecidedAt: at.Add(time.Millisecond), DeliveredAt: at.Add(2 * time.Millisecond),
	}
}

// lockedBuffer is a log that tests read while servers write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
