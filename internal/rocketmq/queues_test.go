package rocketmq

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

func queuesOf(broker string, n int) []txn.Queue {
	var list []txn.Queue
	for id := range n {
		list = append(list, txn.Queue{Broker: broker, ID: id})
	}
	return list
}

func (f *fixture) assertQueues(topic string, want []txn.Queue) {
	f.t.Helper()
	got, err := f.client.Queues(f.t.Context(), topic)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		f.t.Errorf("queues of %s: %v (-want +got):\n%s", topic, err, diff)
	}
}

func TestQueues(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		broker := devstack.BrokerName(0)
		f.assertQueues(f.topic, queuesOf(broker, topicQueues))
		if err := f.client.CreateTopic(t.Context(), f.topic, 12); err != nil {
			t.Fatal(err)
		}
		f.assertQueues(f.topic, queuesOf(broker, 12))
		created := "adapter-" + f.client.NewUniqKey()
		if err := f.client.CreateTopic(t.Context(), created, 3); err != nil {
			t.Fatal(err)
		}
		f.assertQueues(created, queuesOf(broker, 3))
		_, err := f.client.Queues(t.Context(), "no-such-topic")
		if !isUnavailable("no-such-topic")(err) {
			t.Errorf("a topic that does not exist: got %v, want broker_unavailable that names it", err)
		}
	})
}

// A topic that others change is seen by itself, within the time that routes are kept.
func TestQueuesAreKeptFresh(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
	f.assertQueues(f.topic, queuesOf(devstack.BrokerName(0), topicQueues))
	f.createTopic(f.topic, topicQueues+1)
	await.Success(t, 20*time.Second, func() error {
		if got, err := f.client.Queues(t.Context(), f.topic); len(got) != topicQueues+1 {
			return fmt.Errorf("got %d queues, %w", len(got), err)
		}
		return nil
	})
}

func TestCheck(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		if err := firstError(f.client.Check(t.Context(), []string{f.topic})); err != nil {
			t.Errorf("all is well: got %v", err)
		}
		checks := f.client.Check(t.Context(), []string{f.topic, "no-such-topic", f.topic})
		want := []string{"nameserver", "broker:broker-a", "topic:" + f.topic, "topic:no-such-topic"}
		if got := names(checks); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, c := range checks {
			if wrong := c.Name == "topic:no-such-topic"; wrong != (c.Err != nil) || wrong && !strings.Contains(c.Err.Error(), "no-such-topic does not exist") {
				t.Errorf("%s: got %v", c.Name, c.Err)
			}
			if c.Name == "topic:"+f.topic && c.Detail != "4 queues" {
				t.Errorf("%s: got detail %q, want 4 queues", c.Name, c.Detail)
			}
		}
	})
}

func names(checks []Check) []string {
	var all []string
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

// A client whose name server cannot be reached, or not even looked up, starts, and says so; nothing it is asked for hangs.
func TestNoNameserver(t *testing.T) {
	for _, transport := range transports {
		for _, nameserver := range []string{"localhost:1", "no-such-host.invalid:9876"} {
			t.Run(string(transport)+"/"+nameserver, func(t *testing.T) {
				t.Parallel()
				testNoNameserver(t, transport, nameserver)
			})
		}
	}
}

func testNoNameserver(t *testing.T, transport Transport, nameserver string) {
	t.Helper()
	c, err := New(Config{
		Nameservers: []string{nameserver}, Group: "adapter", Transport: transport, Timing: txn.DefaultTiming(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.Start(t.Context(), []string{"t"}, nil); err != nil {
		t.Fatal(err)
	}
	checks := c.Check(t.Context(), []string{"t"})
	if got, want := names(checks), []string{"nameserver", "broker", "topic:t"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, check := range checks {
		if check.Err == nil {
			t.Errorf("%s: got no error", check.Name)
		}
	}
	m := txn.Message{UniqKey: c.NewUniqKey(), Topic: "t", TxID: "tx", Body: []byte("x"), Queue: txn.Queue{Broker: "broker-a"}}
	if _, err := c.SendHalf(t.Context(), m); !txn.IsUnsent(err) && !isUnavailable("t")(err) {
		t.Errorf("half message: got %v, want not sent", err)
	}
	if err := c.End(t.Context(), txn.Half{Broker: "broker-a"}, txn.DecisionCommit, time.Time{}); !txn.IsUnsent(err) {
		t.Errorf("end: got %v, want that it is not sent", err)
	}
	if err := c.Tail(t.Context(), "t", true, nil); !isUnavailable("t")(err) {
		t.Errorf("tail: got %v, want broker_unavailable", err)
	}
}

// strict brokers want a slave's acknowledgement before they say SEND_OK, and have no slave.
func strict() devstack.Options {
	config := map[string]string{"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "300"}
	maps.Copy(config, checksSoon)
	return devstack.Options{Brokers: 2, BrokerConfig: config}
}

// TestBrokersThatFail breaks a stack of its own, step by step.
func TestBrokersThatFail(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, strict())
	var fixtures []*fixture
	var g errgroup.Group
	for _, transport := range transports {
		i := newInquiries()
		f := newFixture(t, stack.Nameservers(), transport, i.handle)
		f.assertQueues(f.topic, slices.Concat(queuesOf("broker-a", topicQueues), queuesOf("broker-b", topicQueues)))
		fixtures = append(fixtures, f)
		g.Go(func() error { return f.halfMessageIsTakenBack(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	fixtures[0].nameServerForgets("broker-a", "broker-b")
	stack.Broker(1).Kill()
	for _, f := range fixtures {
		f.brokerIsMissing("broker-b")
	}
	if err := stack.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range fixtures {
		f.brokerIsBack("broker-b")
		f.awaitQueues(2 * topicQueues)
	}
	stack.Namesrv().Kill()
	for _, f := range fixtures { // deliveries go on by what is known
		for range 3 {
			began := time.Now()
			removed, err := f.client.Removed(t.Context(), f.topic, txn.Queue{Broker: "broker-b", ID: 0})
			if took := time.Since(began); removed || err != nil || took > 2*f.client.timing.AskRouteWithin {
				t.Errorf("without a name server: removed %t, %v, after %s", removed, err, took)
			}
		}
		if removed, err := f.client.Removed(t.Context(), "another", txn.Queue{Broker: "broker-b", ID: 0}); removed || err == nil {
			t.Errorf("an unknown topic without a name server: got %t and no error", removed)
		}
	}
}

// halfMessageIsTakenBack: a half message that is stored with anything but SEND_OK is an error, and the broker never asks
// about it. It would have, when it asks about one that was stored after it.
func (f *fixture) halfMessageIsTakenBack(i *inquiries) error {
	m := f.message(0)
	if _, err := f.client.SendHalf(f.t.Context(), m); !txn.IsUnsent(err) || !strings.Contains(err.Error(), "FLUSH_SLAVE_TIMEOUT") {
		return fmt.Errorf("%s: got %v, want that it is not sent with the status", f.transport, err)
	}
	later := f.message(0)
	request := sendRequest(&later)
	request.Half = true
	if _, err := f.client.remote.Send(f.t.Context(), later.Queue.Broker, request); err != nil {
		return err
	}
	if err := await.Poll(30*time.Second, func() error { return i.asked(later.UniqKey, 1) }); err != nil {
		return err
	}
	if got := len(i.of(m.UniqKey)); got != 0 {
		return fmt.Errorf("%s: the broker asked %d times about the half message that was taken back", f.transport, got)
	}
	return nil
}

// nameServerForgets: for a while the name server knows of the topic what the one broker has, and lists the other one. What
// that one has is not taken for removed.
func (f *fixture) nameServerForgets(told, other string) {
	f.t.Helper()
	await.Success(f.t, time.Minute, func() error { // the other one tells it again every 10 s: that may come too early
		if err := f.reader.ForgetTopic(f.t.Context(), f.topic); err != nil {
			return err
		}
		both := remoting.QueueData{Broker: told, Read: topicQueues, Write: topicQueues, Perm: remoting.PermRead | remoting.PermWrite}
		if err := f.reader.ChangeTopic(f.t.Context(), f.topic, both); err != nil {
			return err
		}
		if err := await.Poll(3*time.Second, func() error { _, err := f.reader.RefreshRoute(f.t.Context(), f.topic); return err }); err != nil {
			return err
		}
		if err := f.client.Refresh(f.t.Context(), f.topic); err != nil {
			return err
		}
		removed, err := f.client.Removed(f.t.Context(), f.topic, txn.Queue{Broker: other, ID: 0})
		if removed {
			f.t.Fatalf("a queue that %s has is taken for removed", other)
		}
		route := f.client.remote.KnownRoute(f.topic)
		if _, known := shareOf(route, other); err != nil || known || route == nil {
			return fmt.Errorf("the name server was not seen without the topic on %s (%w)", other, err)
		}
		return nil
	})
	f.awaitQueues(2 * topicQueues)
}

// awaitQueues waits until the client knows that the topic has so many.
func (f *fixture) awaitQueues(n int) {
	f.t.Helper()
	await.Success(f.t, 30*time.Second, func() error {
		if err := f.client.Refresh(f.t.Context(), f.topic); err != nil {
			return err
		}
		if queues, err := f.client.Queues(f.t.Context(), f.topic); err != nil || len(queues) != n {
			return fmt.Errorf("%d queues (%w)", len(queues), err)
		}
		return nil
	})
}

func (f *fixture) brokerIsMissing(broker string) {
	f.t.Helper()
	await.Success(f.t, 20*time.Second, func() error {
		for _, c := range f.client.Check(f.t.Context(), nil) {
			if wrong := c.Name == "broker:"+broker; wrong != (c.Err != nil && !c.Half) {
				return fmt.Errorf("%s: %w", c.Name, c.Err)
			}
		}
		return nil
	})
	m := f.message(0)
	m.Queue.Broker = broker
	await.Success(f.t, 20*time.Second, func() error { // a first one may still meet the old connection
		if _, err := f.client.SendHalf(f.t.Context(), m); !txn.IsUnsent(err) {
			return fmt.Errorf("%s: half message to a broker that is down: %w", f.transport, err)
		}
		return nil
	})
	if err := f.client.End(f.t.Context(), txn.Half{Broker: broker}, txn.DecisionCommit, time.Time{}); !txn.IsUnsent(err) {
		f.t.Errorf("end at a broker that is down: got %v, want that it is not sent", err)
	}
	if _, err := f.client.Visible(f.t.Context(), m, -1, time.Time{}, true); err == nil {
		f.t.Error("asking the index of a broker that is down: got no error")
	}
}

func (f *fixture) brokerIsBack(broker string) {
	f.t.Helper()
	m := f.message(0)
	m.Queue.Broker = broker
	await.Success(f.t, 60*time.Second, func() error {
		if err := firstError(f.client.Check(f.t.Context(), []string{f.topic})); err != nil {
			return err
		}
		m.UniqKey = f.client.NewUniqKey()
		// Its status is still not SEND_OK: it was stored, and taken back.
		if _, err := f.client.SendHalf(f.t.Context(), m); err == nil || !strings.Contains(err.Error(), "FLUSH_SLAVE_TIMEOUT") {
			return fmt.Errorf("%s: half message to a broker that is back: %v", f.transport, err)
		}
		return nil
	})
}
