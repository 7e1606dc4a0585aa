package messages_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestMain looks for leaked goroutines, but for those of rocketmq-client-go, which package rocketmq imports: a cache's,
// which runs from the start of any program that does.
func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m), goleak.IgnoreCurrent()) }

// router picks among the queues of the moment.
type router struct{ client *rocketmq.Client }

func (r router) Route(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	queues, err := r.client.Queues(ctx, d.Topic)
	if err != nil {
		return txn.Route{}, txn.Coded(err, "")
	}
	return d.Selector.Select(queues, in)
}

func (router) Refresh(context.Context, string) {}

// fixture is a service with a topic of its own, and a look at the broker from beside.
type fixture struct {
	t        *testing.T
	service  *messages.Service
	config   messages.Config
	selector txn.Selector
	client   *rocketmq.Client
	reader   *remoting.Client
	topic    string
	registry *prometheus.Registry
	counted  *prometheus.CounterVec // messages by queue
}

const queues = 4

func newFixture(t *testing.T, nameservers []string, spec selector.Spec, change func(*messages.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, topic: "messages-" + remoting.UniqKey(), registry: prometheus.NewRegistry()}
	var err error
	if f.reader, err = remoting.New(remoting.Config{Nameservers: nameservers, Group: "reader-" + f.topic}); err != nil {
		t.Fatal(err)
	}
	if f.client, err = rocketmq.New(rocketmq.Config{
		Nameservers: nameservers, Group: "group-" + f.topic, Transport: rocketmq.TransportNative, Timing: txn.DefaultTiming(), Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.reader.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.client.Start(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.reader.Close(context.Background()) })
	t.Cleanup(func() { _ = f.client.Close(context.Background()) })
	if err := f.reader.CreateTopic(ctx, f.topic, queues); err != nil {
		t.Fatal(err)
	}
	s, err := selector.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	config := messages.DefaultConfig()
	if change != nil {
		change(&config)
	}
	f.counted = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "queues"}, []string{"topic", "broker", "queue"})
	f.registry.MustRegister(f.counted)
	f.config, f.selector = config, s
	f.service = f.serviceWith(f.router(), f.registry)
	return f
}

func (f *fixture) router() router { return router{f.client} }

// serviceWith makes a service with another router.
func (f *fixture) serviceWith(r messages.Router, reg prometheus.Registerer) *messages.Service {
	topics := map[string]txn.Destination{f.topic: {Topic: f.topic, Selector: f.selector}, "other": {Topic: "other", Selector: f.selector}}
	s := messages.New(f.config, topics, r, f.client, reg, f.counted, slog.New(slog.DiscardHandler))
	f.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	return s
}

// newShared makes one on the stack that the tests share, with the default selector.
func newShared(t *testing.T, change func(*messages.Config)) *fixture {
	t.Helper()
	t.Parallel()
	return newFixture(t, stacktest.Shared(t).Nameservers, selector.Spec{Type: selector.Default}, change)
}

// close stops the service within the limit, and returns what it says.
func (f *fixture) close(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f.service.Close(ctx)
}

// request is one message, or a batch where there are several bodies.
func (f *fixture) request(key string, bodies ...string) messages.Request {
	r := messages.Request{Topic: f.topic, ShardKey: key, Batch: len(bodies) > 1}
	for _, body := range bodies {
		r.Messages = append(r.Messages, messages.Message{Body: []byte(body)})
	}
	return r
}

func (f *fixture) send(r messages.Request) *messages.Receipt {
	f.t.Helper()
	receipt, err := f.service.Send(f.t.Context(), r)
	if err != nil {
		f.t.Fatalf("mode %s: %v", r.Mode, err)
	}
	return receipt
}

// queue reads all of a queue.
func (f *fixture) queue(q txn.Queue) ([]remoting.Message, error) {
	ctx := context.Background()
	end, err := f.reader.MaxOffset(ctx, q.Broker, f.topic, q.ID)
	if err != nil {
		return nil, err
	}
	var all []remoting.Message
	for offset := int64(0); offset < end; {
		got, err := f.reader.Pull(ctx, q.Broker, "reader", f.topic, q.ID, offset, 32, 0)
		if err != nil {
			return nil, err
		}
		if got.NextOffset <= offset {
			return nil, fmt.Errorf("queue %s ends at %d, before %d", q, offset, end)
		}
		all, offset = append(all, got.Messages...), got.NextOffset
	}
	return all, nil
}

// await waits until all queues together hold so many messages, and returns them by queue.
func (f *fixture) await(want int) map[txn.Queue][]remoting.Message {
	f.t.Helper()
	var found map[txn.Queue][]remoting.Message
	await.Success(f.t, 20*time.Second, func() error {
		found = make(map[txn.Queue][]remoting.Message)
		route, err := f.reader.Route(context.Background(), f.topic)
		if err != nil {
			return err
		}
		total := 0
		for _, q := range route.Queues {
			for id := range q.Read {
				at := txn.Queue{Broker: q.Broker, ID: id}
				messages, err := f.queue(at)
				if err != nil {
					return err
				}
				if total += len(messages); len(messages) > 0 {
					found[at] = messages
				}
			}
		}
		if total != want {
			return fmt.Errorf("%d messages are visible, want %d", total, want)
		}
		return nil
	})
	return found
}

// metric is txsvc_messages_total of the mode and status.
func (f *fixture) metric(mode, status string) float64 {
	f.t.Helper()
	return f.counter("txsvc_messages_total", map[string]string{"topic": f.topic, "mode": mode, "status": status})
}

// countedIn is how many messages are counted as visible in the queue.
func (f *fixture) countedIn(q txn.Queue) float64 {
	f.t.Helper()
	return f.counter("queues", map[string]string{"topic": f.topic, "broker": q.Broker, "queue": fmt.Sprint(q.ID)})
}

func (f *fixture) counter(name string, want map[string]string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == name && maps.Equal(labels, want) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
