package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// consumerProperties are what a consumer may rely on, of the message that fixture.message makes.
func consumerProperties(m txn.Message) map[string]string {
	p := map[string]string{
		"UNIQ_KEY": m.UniqKey, "KEYS": m.TxID + " key-1 schlüssel-2", "TAGS": m.Tag, "SHARDING_KEY": m.ShardKey,
		"TX_ID": m.TxID, "TX_KIND": m.Kind, "traceparent": m.Traceparent,
	}
	for name, value := range m.Properties {
		p[name] = value
	}
	return p
}

// addBrokersOwn adds what the broker puts on every message, and what it leaves on those that came from half messages.
func (f *fixture) addBrokersOwn(p map[string]string) {
	p["CLUSTER"], p["MSG_REGION"], p["TRACE_ON"] = "DefaultCluster", "DefaultRegion", "true"
	p["PGROUP"], p["__transactionId__"] = f.group, p["UNIQ_KEY"]
}

func propertyMap(m remoting.Message) map[string]string {
	p := make(map[string]string)
	for _, property := range m.Properties {
		p[property.Name] = property.Value
	}
	return p
}

func TestCommittedHalfMessage(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := f.message(2)
		h := f.sendHalf(m)
		if h.UniqKey != m.UniqKey || h.Broker != m.Queue.Broker || h.TransactionID != m.UniqKey || h.FromCheck {
			t.Errorf("half message: got %+v", h)
		}
		if got := f.visible(); len(got) != 0 {
			t.Errorf("before the commit: got messages in %d queues, want none", len(got))
		}
		f.end(h, txn.DecisionCommit)
		got := f.awaitVisible(m.Queue, 1)[0]
		if string(got.Body) != string(m.Body) || got.Topic != m.Topic {
			t.Errorf("got %q of topic %s, want %q of %s", got.Body, got.Topic, m.Body, m.Topic)
		}
		want := consumerProperties(m)
		f.addBrokersOwn(want)
		want["TRAN_MSG"] = "true" // the broker leaves it
		if diff := cmp.Diff(want, propertyMap(got)); diff != "" {
			t.Errorf("properties (-want +got):\n%s", diff)
		}
	})
}

// A message that was sent without a half message has the same properties, but for TRAN_MSG: with it, it would be one.
func TestSentMessage(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := f.message(1)
		if err := f.client.Send(t.Context(), m, time.Time{}); err != nil {
			t.Fatal(err)
		}
		got := f.awaitVisible(m.Queue, 1)[0]
		want := consumerProperties(m)
		f.addBrokersOwn(want)
		if diff := cmp.Diff(want, propertyMap(got)); diff != "" || string(got.Body) != string(m.Body) {
			t.Errorf("body %q, properties (-want +got):\n%s", got.Body, diff)
		}
	})
}

func TestMessageWithoutOptionalParts(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := txn.Message{
			UniqKey: f.client.NewUniqKey(), Topic: f.topic, ShardKey: "k", TxID: "tx", Kind: "kind", Body: []byte("0"), Queue: f.message(0).Queue,
		}
		f.end(f.sendHalf(m), txn.DecisionCommit)
		p := propertyMap(f.awaitVisible(m.Queue, 1)[0])
		for _, name := range []string{"TAGS", "traceparent", "CHECK_IMMUNITY_TIME_IN_SECONDS"} {
			if got, ok := p[name]; ok {
				t.Errorf("property %s: got %q, want none", name, got)
			}
		}
		if p["KEYS"] != "tx" {
			t.Errorf("KEYS: got %q, want the transaction id", p["KEYS"])
		}
	})
}

func TestRolledBackHalfMessage(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		f.end(f.sendHalf(f.message(0)), txn.DecisionRollback)
		f.assertNothingVisible()
	})
}

// The broker executes every commit: Visible tells the copies, and the index is what tells a lost reply from a lost
// request.
func TestVisibleCountsCopies(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		since := time.Now().Add(-time.Minute)
		m := f.message(3)
		h := f.sendHalf(m)
		if got, err := f.client.Visible(t.Context(), m, -1, since, true); got != 0 || err != nil {
			t.Errorf("before the commit: got %d, %v, want 0", got, err)
		}
		for want := 1; want <= 2; want++ {
			f.end(h, txn.DecisionCommit)
			await.Success(t, 10*time.Second, func() error {
				got, err := f.client.Visible(t.Context(), m, -1, since, true)
				if err == nil && got < want {
					return errors.New("not in the index yet")
				}
				if got > want {
					t.Errorf("after %d commits: got %d copies", want, got)
				}
				return err
			})
		}
		f.awaitVisible(m.Queue, 2)
		other := m
		other.UniqKey = f.client.NewUniqKey()
		if got, err := f.client.Visible(t.Context(), other, -1, since, true); got != 0 || err != nil {
			t.Errorf("another message: got %d, %v, want 0", got, err)
		}
		if got, err := f.client.Visible(t.Context(), m, -1, time.Now().Add(time.Hour), true); got != 0 || err != nil {
			t.Errorf("since a time in the future: got %d, %v, want 0", got, err)
		}
	})
}

// Both transports make the first use of a topic that they have not heard of.
func TestFirstUseOfATopic(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		f.topic = f.newTopic(1)
		m := f.message(0)
		f.end(f.sendHalf(m), txn.DecisionCommit)
		f.awaitVisible(m.Queue, 1)
	})
}

// A topic that gets more queues is used to its full width at once, also by the library, which looks every 30 s only.
func TestQueueThatCameLater(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		f.end(f.sendHalf(f.message(0)), txn.DecisionRollback) // the library knows the route now
		f.createTopic(f.topic, topicQueues+2)
		m := f.message(topicQueues + 1)
		f.end(f.sendHalf(m), txn.DecisionCommit)
		f.awaitVisible(m.Queue, 1)
	})
}

func TestNameserverByHostName(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		f.client = f.newClient(byHostName(t, f.nameservers), nil)
		m := f.message(0)
		f.end(f.sendHalf(m), txn.DecisionCommit)
		f.awaitVisible(m.Queue, 1)
	})
}

func TestProbe(t *testing.T) {
	f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
	if err := f.client.Probe(t.Context(), f.message(0).Queue.Broker); err != nil {
		t.Error(err)
	}
	if err := f.client.Probe(t.Context(), "broker-x"); err == nil {
		t.Error("a broker that does not exist: got no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.client.Probe(ctx, f.message(0).Queue.Broker); err == nil {
		t.Error("with a cancelled context: got no error")
	}
}

// TestVisibleWhereTheIndexIsOff: a broker's index knows nothing, and its connection is older than the message. How far a half
// message has come is seen by its queue, and what is visible by reading its own.
func TestVisibleWhereTheIndexIsOff(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{BrokerConfig: map[string]string{"messageIndexEnable": "false"}})
	f := newFixture(t, stack.Nameservers(), TransportNative, nil)
	since := time.Now()
	m := f.message(0)
	h := f.sendHalf(m)
	await.Success(t, 30*time.Second, func() error {
		if reach, err := f.client.Reach(t.Context(), h); err != nil || reach != txn.ReachQueue {
			return fmt.Errorf("the half message has come to %d (%w), want its queue", reach, err)
		}
		return nil
	})
	next := h
	next.QueueOffset++
	if reach, err := f.client.Reach(t.Context(), next); err != nil || reach != txn.ReachNothing {
		t.Errorf("a half message behind the last: got %d, %v, want nothing", reach, err)
	}
	if got, err := f.client.Visible(t.Context(), m, h.CommitLogOffset, since, false); got != 0 || err != nil {
		t.Errorf("before the commit: got %d, %v, want 0", got, err)
	}
	f.end(h, txn.DecisionCommit)
	f.awaitVisible(m.Queue, 1)
	if got, err := f.client.Visible(t.Context(), m, h.CommitLogOffset, since, false); got != 1 || err != nil {
		t.Errorf("after the commit: got %d, %v, want 1", got, err)
	}
}
