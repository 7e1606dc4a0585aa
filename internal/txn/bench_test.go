package txn

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkSubmit is the cost of the flow alone, for a request of the usual size, whose ports cost nothing.
func BenchmarkSubmit(b *testing.B) {
	kind := &Kind{Name: "order.create", Destination: Destination{Topic: "orders"}, Timeout: 5 * time.Second}
	service := NewService(Config{MaxInFlight: 1, Timing: DefaultTiming()}, []*Kind{kind}, free{}, free{}, free{}, nobody{},
		NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	request := Request{Kind: kind.Name, ShardKey: "acme", Payload: json.RawMessage(`{"customer":"acme","currency":"EUR","reference":"PO-17",` +
		`"items":[{"sku":"A-1","quantity":2,"amount_minor":1250},{"sku":"B-7","quantity":1,"amount_minor":990}]}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := service.Submit(b.Context(), request); err != nil {
			b.Fatal(err)
		}
	}
}

// free implements the ports that an ordinary request uses.
type free struct {
	Routing
	Store
}

// nobody is Deliveries that an ordinary request does not use.
type nobody struct{ Deliveries }

var committed = &Transaction{State: StateCommitted, Delivery: DeliveryPending, Route: Route{Queue: inQueue}}

func (free) Route(context.Context, Destination, SelectorInput) (Route, error) {
	return Route{Queue: inQueue}, nil
}
func (free) Readable(string, Queue) bool                          { return true }
func (free) NewUniqKey() string                                   { return "key" }
func (free) SendHalf(context.Context, Message) (Half, error)      { return Half{}, nil }
func (free) End(context.Context, Half, Decision, time.Time) error { return nil }
func (free) MarkDelivered(string, time.Time, bool)                {}
func (free) Run(context.Context, *Attempt) Outcome {
	t := *committed
	return Outcome{Transaction: &t, Lease: Lease{WriteBefore: time.Now().Add(time.Second)}}
}
