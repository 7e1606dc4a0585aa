package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestMain looks for leaked goroutines, but for those of rocketmq-client-go: a cache's, which runs from the start of any
// program that imports it, and those of its clients, which all run under WithRecover; some of them sleep for 10 s before
// they look whether their client was shut down, and nothing wakes them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(runner{stacktest.With(m)}, goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("github.com/apache/rocketmq-client-go/v2/primitive.WithRecover"))
}

// runner also ends the stack whose brokers are impatient.
type runner struct{ tests stacktest.Runner }

func (r runner) Run() int {
	code := r.tests.Run()
	releaseImpatient()
	return code
}

// checksSoon makes a broker ask back after 4 s and once a second from then on. It notes ends in batches, and what it has
// not noted when it looks it asks about all the same: the time before is what a busy machine may need to get that far.
var checksSoon = stacktest.Patient(map[string]string{
	"transactionTimeOut": "4000", "transactionCheckInterval": "1000", "transactionOpBatchInterval": "200",
})

// impatient starts, at its first use, a stack that the tests share whose broker has these settings.
var (
	releaseImpatient = func() {}
	impatient        = sync.OnceValues(func() (*devstack.Stack, error) {
		s, release, err := stacktest.StartTemporary(context.Background(), devstack.Options{BrokerConfig: checksSoon})
		if err == nil {
			releaseImpatient = release
		}
		return s, err
	})
)

var transports = []Transport{TransportNative, TransportLibrary}

// eachTransport runs the test with a client of the shared stack and a topic of its own, of four queues.
func eachTransport(t *testing.T, test func(t *testing.T, f *fixture)) {
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, stacktest.Shared(t).Nameservers, transport, nil))
		})
	}
}

// fixture is a started client, a topic, and a look at the broker from beside.
type fixture struct {
	t           *testing.T
	nameservers []string
	group       string
	transport   Transport
	client      *Client
	reader      *remoting.Client // of another group: sees what consumers see
	topic       string
}

const topicQueues = 4

func newFixture(t *testing.T, nameservers []string, transport Transport, handle CheckbackHandler) *fixture {
	t.Helper()
	f := &fixture{t: t, nameservers: nameservers, group: "adapter-" + remoting.UniqKey(), transport: transport}
	f.reader = newReader(t, nameservers, "reader-"+f.group)
	f.topic = f.newTopic(topicQueues)
	f.client = f.newClient(nameservers, handle)
	return f
}

// newReader returns a client of the wire, in a group of its own, or in another's.
func newReader(t *testing.T, nameservers []string, group string) *remoting.Client {
	t.Helper()
	r, err := remoting.New(remoting.Config{Nameservers: nameservers, Group: group})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

func (f *fixture) newClient(nameservers []string, handle CheckbackHandler) *Client {
	f.t.Helper()
	c, err := New(Config{
		Nameservers: nameservers, Group: f.group, Transport: f.transport, Timing: txn.DefaultTiming(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := c.Start(f.t.Context(), nil, handle); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close(context.Background()) })
	await.Success(f.t, 20*time.Second, func() error { return firstError(c.Check(context.Background(), nil)) })
	return c
}

// firstError leaves out that a broker which answers stores no half messages.
func firstError(checks []Check) error {
	for _, c := range checks {
		if c.Err != nil && !c.Half {
			return fmt.Errorf("%s: %w", c.Name, c.Err)
		}
	}
	return nil
}

func (f *fixture) newTopic(queues int) string {
	f.t.Helper()
	topic := "adapter-" + remoting.UniqKey()
	f.createTopic(topic, queues)
	return topic
}

func (f *fixture) createTopic(topic string, queues int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := f.reader.CreateTopic(ctx, topic, queues); err != nil {
		f.t.Fatal(err)
	}
}

// message is one with everything that a message can have, for the topic's queue with that id.
func (f *fixture) message(queue int) txn.Message {
	return txn.Message{
		UniqKey: f.client.NewUniqKey(), Topic: f.topic, Tag: "created", Keys: []string{"key-1", "schlüssel-2"}, ShardKey: "customer 7 – 東京",
		TxID: "tx-" + remoting.UniqKey(), Kind: "order.create", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Properties: map[string]string{"region": "Köln", "emoji": "🚚", "quote": `a "b" \ c`, "z": "="},
		Body:       []byte("{\"b\": 1, \"a\" :\t\"\\u00fc ü 🚚\"}"),
		Queue:      txn.Queue{Broker: devstack.BrokerName(0), ID: queue},
	}
}

// sendHalf stores a half message, or fails the test.
func (f *fixture) sendHalf(m txn.Message) txn.Half {
	f.t.Helper()
	h, err := f.client.SendHalf(f.t.Context(), m)
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// end decides a half message, or fails the test.
func (f *fixture) end(h txn.Half, d txn.Decision) {
	f.t.Helper()
	if err := f.client.End(f.t.Context(), h, d, time.Time{}); err != nil {
		f.t.Fatal(err)
	}
}

// read returns all messages of one queue.
func (f *fixture) read(topic string, q txn.Queue) []remoting.Message {
	f.t.Helper()
	ctx := context.Background()
	end, err := f.reader.MaxOffset(ctx, q.Broker, topic, q.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	var all []remoting.Message
	for offset := int64(0); offset < end; {
		got, err := f.reader.Pull(ctx, q.Broker, "reader", topic, q.ID, offset, 32, 0)
		if err != nil {
			f.t.Fatal(err)
		}
		if got.NextOffset <= offset {
			f.t.Fatalf("queue %s of %s ends at %d, before %d", q, topic, offset, end)
		}
		all, offset = append(all, got.Messages...), got.NextOffset
	}
	return all
}

// visible returns the messages of the topic by queue.
func (f *fixture) visible() map[txn.Queue][]remoting.Message {
	f.t.Helper()
	route, err := f.reader.RefreshRoute(context.Background(), f.topic)
	if err != nil {
		f.t.Fatal(err)
	}
	found := make(map[txn.Queue][]remoting.Message)
	for _, q := range route.Queues {
		for id := range q.Read {
			queue := txn.Queue{Broker: q.Broker, ID: id}
			if messages := f.read(f.topic, queue); len(messages) > 0 {
				found[queue] = messages
			}
		}
	}
	return found
}

// awaitVisible waits until the queue holds so many messages, and checks that no other queue of the topic holds one. What
// is visible follows the broker's answer by some milliseconds.
func (f *fixture) awaitVisible(q txn.Queue, want int) []remoting.Message {
	f.t.Helper()
	var found map[txn.Queue][]remoting.Message
	await.Success(f.t, 10*time.Second, func() error {
		found = f.visible()
		if got := len(found[q]); got < want {
			return fmt.Errorf("queue %s holds %d messages, want %d", q, got, want)
		}
		return nil
	})
	if len(found[q]) != want || len(found) != 1 {
		f.t.Errorf("queue %s: got %d messages, want %d; queues with messages: %v", q, len(found[q]), want, slices.Collect(maps.Keys(found)))
	}
	return found[q]
}

// assertNothingVisible commits one more half message and waits for it, so that whatever came before it would be visible
// too, and then wants only that one in the topic.
func (f *fixture) assertNothingVisible() {
	f.t.Helper()
	m := f.message(0)
	f.end(f.sendHalf(m), txn.DecisionCommit)
	if got := f.awaitVisible(m.Queue, 1); got[0].UniqKey() != m.UniqKey {
		f.t.Errorf("got message %s, want %s alone", got[0].UniqKey(), m.UniqKey)
	}
}

// byHostName replaces the addresses of the name servers by host names.
func byHostName(t *testing.T, nameservers []string) []string {
	t.Helper()
	var named []string
	for _, ns := range nameservers {
		_, port, err := net.SplitHostPort(ns)
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, net.JoinHostPort("localhost", port))
	}
	return named
}
