package http_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// BenchmarkSubmit is the cost of HTTP and JSON alone for an order of the usual size, without the network.
func BenchmarkSubmit(b *testing.B) {
	h := setup(b)
	h.flow.submit = func(_ context.Context, r txn.Request) (*txn.Transaction, error) { return delivered(r), nil }
	config := h.config()
	config.Registerer = prometheus.NewRegistry()
	config.Log = slog.New(slog.DiscardHandler)
	handler := newHandler(b, config)
	body := []byte(`{"id":"order-2024-000017","shard_key":"acme","payload":{"customer":"acme","currency":"EUR","reference":"PO-17",` +
		`"items":[{"sku":"A-1","quantity":2,"amount_minor":1250},{"sku":"B-7","quantity":1,"amount_minor":990}]}}`)
	request := newRequest("/v1/orders", "")
	reader := bytes.NewReader(body)
	request.Body, request.ContentLength = io.NopCloser(reader), int64(len(body))
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		clear(w.header)
		handler.ServeHTTP(w, request)
	}
	if w.status != http.StatusCreated {
		b.Fatalf("got status %d, want 201", w.status)
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
