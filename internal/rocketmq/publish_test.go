package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// plain is a message without a transaction, with everything else that a message can have.
func (f *fixture) plain(queue int) txn.Message {
	m := f.message(queue)
	m.TxID, m.Kind = "", ""
	return m
}

func newPublishFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
}

func (f *fixture) publish(list ...txn.Message) {
	f.t.Helper()
	status, err := f.client.Publish(f.t.Context(), list)
	if err != nil || status != txn.SendOK {
		f.t.Fatalf("got status %s, error %v; want SEND_OK", status, err)
	}
}

// assertPlain compares a message, with what the broker does not add by itself.
func (f *fixture) assertPlain(want txn.Message, got remoting.Message) {
	f.t.Helper()
	wantProperties := consumerProperties(want)
	wantProperties["KEYS"] = strings.Join(want.Keys, " ")
	delete(wantProperties, "TX_ID")
	delete(wantProperties, "TX_KIND")
	gotProperties := propertyMap(got)
	for name := range gotProperties {
		switch name { // the broker's, by the way that the message came
		case "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
			"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES":
			delete(gotProperties, name)
		}
	}
	if diff := cmp.Diff(wantProperties, gotProperties); diff != "" || !bytes.Equal(got.Body, want.Body) || got.Topic != want.Topic {
		f.t.Errorf("body %q of topic %s, properties (-want +got):\n%s", got.Body, got.Topic, diff)
	}
}

func TestPublish(t *testing.T) {
	f := newPublishFixture(t)
	m := f.plain(2)
	f.publish(m)
	f.assertPlain(m, f.awaitVisible(m.Queue, 1)[0])
}

func TestPublishBatch(t *testing.T) {
	f := newPublishFixture(t)
	var list []txn.Message
	for i := range 20 {
		m := f.plain(3)
		m.Body, m.Tag = fmt.Appendf(nil, "%d 世", i), "tag-"+strconv.Itoa(i)
		list = append(list, m)
	}
	f.publish(list...)
	for i, got := range f.awaitVisible(list[0].Queue, len(list)) {
		f.assertPlain(list[i], got)
	}
}

func TestPublishOneWay(t *testing.T) {
	f := newPublishFixture(t)
	single, batch := f.plain(1), []txn.Message{f.plain(1), f.plain(1)}
	if err := f.client.PublishOneWay([]txn.Message{single}); err != nil {
		t.Fatal(err)
	}
	f.assertPlain(single, f.awaitVisible(single.Queue, 1)[0])
	if err := f.client.PublishOneWay(batch); err != nil {
		t.Fatal(err)
	}
	for i, got := range f.awaitVisible(single.Queue, 3)[1:] {
		f.assertPlain(batch[i], got)
	}
}

// A delayed message appears in the queue that it was sent to, not before its time.
func TestPublishDelayed(t *testing.T) {
	for name, delay := range map[string]func(m *txn.Message) time.Time{
		"level": func(m *txn.Message) time.Time { m.DelayLevel = 1; return time.Now().Add(time.Second) },
		"time": func(m *txn.Message) time.Time {
			m.DeliverAt = time.Now().Add(2500 * time.Millisecond)
			return m.DeliverAt
		},
		"past": func(m *txn.Message) time.Time { m.DeliverAt = time.Now().Add(-time.Hour); return time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newPublishFixture(t)
			m := f.plain(3)
			notBefore := delay(&m)
			f.publish(m)
			got := f.awaitVisible(m.Queue, 1)[0]
			f.assertPlain(m, got)
			if early := notBefore.Sub(time.UnixMilli(got.StoredAt)); early > time.Millisecond {
				t.Errorf("stored in its queue %s before its time", early)
			}
			if late := time.Since(notBefore); late > 5*time.Second {
				t.Errorf("visible %s after its time", late)
			}
		})
	}
}

func wantField(field, words string) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*txn.SendError](err)
		return ok && e.Reason == txn.ReasonInvalid && e.Field == field && strings.Contains(e.Words, words)
	}
}

func TestPublishIsRefused(t *testing.T) {
	f := newPublishFixture(t)
	for name, tc := range map[string]struct {
		change func(m *txn.Message)
		check  func(error) bool
	}{
		"too far ahead": {func(m *txn.Message) { m.DeliverAt = time.Now().Add(73 * time.Hour) }, wantField(txn.FieldDeliverAt, "timerMaxDelaySec")},
		"no such queue": {func(m *txn.Message) { m.Queue.ID = topicQueues }, txn.IsUnsent},
		"no such topic": {func(m *txn.Message) { m.Topic = "no-such-topic" }, isUnavailable("no-such-topic")},
		"no broker":     {func(m *txn.Message) { m.Queue.Broker = "broker-x" }, txn.IsUnsent},
		"large body":    {func(m *txn.Message) { m.Body = make([]byte, 4<<20+1) }, has(txn.ReasonTooLarge)},
	} {
		m := f.plain(1)
		tc.change(&m)
		if _, err := f.client.Publish(t.Context(), []txn.Message{m}); !tc.check(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	large := []txn.Message{f.plain(1), f.plain(1)}
	large[0].Body, large[1].Body = make([]byte, 2<<20), make([]byte, 2<<20)
	if _, err := f.client.Publish(t.Context(), large); !has(txn.ReasonTooLarge)(err) {
		t.Errorf("large batch: got %v, want payload_too_large", err)
	}
	f.assertNothingVisible()
}

// TestPublishToBrokersWithOtherSettings: what a broker answers that cannot keep what it was told to.
func TestPublishToBrokersWithOtherSettings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config map[string]string
		want   txn.SendStatus
		half   string // what the broker says to half messages
		slow   bool   // as it does to others
	}{
		"no slave": {
			map[string]string{"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "100"}, txn.FlushSlaveTimeout,
			"FLUSH_SLAVE_TIMEOUT (no slave confirmed it in time)", true,
		},
		"slow disk": {
			map[string]string{"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "-1000", "rejectTransactionMessage": "true"}, txn.FlushDiskTimeout,
			"NO_PERMISSION (the broker sending transaction message is forbidden)", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config["timerWheelEnable"], tc.config["maxMessageSize"] = "false", "65536"
			stack := stacktest.Private(t, devstack.Options{BrokerConfig: tc.config})
			f := newFixture(t, stack.Nameservers(), TransportNative, nil)
			stored := f.publishUntil(tc.want, f.plain(0))
			stored += 2 * f.publishUntil(tc.want, f.plain(0), f.plain(0))
			f.awaitVisible(f.plain(0).Queue, stored) // whatever the status
			timed := f.plain(0)
			timed.DeliverAt = time.Now().Add(time.Minute)
			await.Success(t, 30*time.Second, func() error { // a loaded broker is busy now and then
				if _, err := f.client.Publish(t.Context(), []txn.Message{timed}); !wantField(txn.FieldDeliverAt, "timerWheelEnable")(err) {
					return fmt.Errorf("a time of delivery: got %w", err)
				}
				return nil
			})
			half := bytes.Repeat([]byte("x"), 40000)
			large := []txn.Message{f.plain(0), f.plain(0)}
			large[0].Body, large[1].Body = half, half
			if _, err := f.client.Publish(t.Context(), large); !has(txn.ReasonTooLarge)(err) {
				t.Errorf("large batch: got %v, want payload_too_large", err)
			}
			f.awaitVisible(f.plain(0).Queue, stored)
			f.awaitOpenBreaker(tc.half, tc.slow)
		})
	}
}

// awaitOpenBreaker sends half messages until they are not sent any more, and looks at what is said of that.
func (f *fixture) awaitOpenBreaker(why string, slow bool) {
	f.t.Helper()
	broker := f.message(0).Queue.Broker
	await.Success(f.t, 30*time.Second, func() error {
		_, err := f.client.SendHalf(f.t.Context(), f.message(0))
		for _, check := range f.client.Check(f.t.Context(), nil) {
			if check.Half && strings.Contains(txn.WordsOf(err), why) && strings.Contains(check.Err.Error(), why) {
				return nil
			}
		}
		return fmt.Errorf("got %w, want %q, in the check of the broker, too", err, why)
	})
	if f.client.Stores(broker) == slow {
		f.t.Errorf("normal messages may be sent: %t", slow)
	}
	b := f.client.breakerOf(broker)
	first := b.trials.Load()
	await.Success(f.t, 30*time.Second, func() error { // the service's own half messages are all that is sent
		if _, err := f.client.SendHalf(f.t.Context(), f.message(0)); err == nil || !strings.Contains(err.Error(), "no half message could be stored by") {
			f.t.Fatalf("got %v, want that it is not sent", err)
		}
		if got := b.trials.Load(); got < first+2 {
			return fmt.Errorf("%d trials", got-first)
		}
		return nil
	})
}

// publishUntil publishes until the broker answers with the status, and returns how often: a flush may be faster than the
// broker's look at its limit.
func (f *fixture) publishUntil(want txn.SendStatus, list ...txn.Message) int {
	f.t.Helper()
	for n := 1; n <= 100; n++ {
		status, err := f.client.Publish(f.t.Context(), list)
		if err != nil || status != want && status != txn.SendOK {
			f.t.Fatalf("%d messages: got %q, %v, want %s", len(list), status, err, want)
		}
		if status == want {
			return n
		}
	}
	f.t.Fatalf("%d messages: the status never was %s", len(list), want)
	return 0
}

// The size that is told of a message in a batch is what the broker counts.
func TestSize(t *testing.T) {
	f := newPublishFixture(t)
	list := []txn.Message{f.plain(0), f.plain(0)}
	rest := txn.MaxMessageSize - f.client.Size(&list[0]) - f.client.Size(&list[1])
	list[0].Body = append(list[0].Body, make([]byte, rest)...)
	f.publish(list...)
	list[0].Body = append(list[0].Body, 'x')
	if _, err := f.client.Publish(t.Context(), list); !has(txn.ReasonTooLarge)(err) {
		t.Errorf("one byte more: got %v, want payload_too_large", err)
	}
}

// TestPublishToAStoppedBroker: what is written to a broker that does not answer may be stored later; what cannot be
// written never is.
func TestPublishToAStoppedBroker(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{BrokerConfig: stacktest.Patient(nil)}) // else it may drop what it finds when it wakes
	f := newFixture(t, stack.Nameservers(), TransportNative, nil)
	f.publish(f.plain(0))
	stack.Broker(0).Pause()
	ctx, cancel := contextWithin(t, 500*time.Millisecond)
	defer cancel()
	_, err := f.client.Publish(ctx, []txn.Message{f.plain(0)})
	if !txn.IsMaybeSent(err) {
		t.Errorf("stopped: got %v, want that it may be sent", err)
	}
	stack.Broker(0).Resume()
	f.awaitVisible(f.message(0).Queue, 2)
	stack.Broker(0).Kill()
	await.Success(t, 20*time.Second, func() error {
		ctx, cancel := contextWithin(t, 500*time.Millisecond)
		defer cancel()
		if _, err := f.client.Publish(ctx, []txn.Message{f.plain(0)}); !txn.IsUnsent(err) {
			return fmt.Errorf("killed: got %w, want that it is not sent", err)
		}
		return nil
	})
	if err := f.client.PublishOneWay([]txn.Message{f.plain(0)}); !txn.IsUnsent(err) {
		t.Errorf("one-way: got %v, want that it is not sent", err)
	}
}

func contextWithin(t *testing.T, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), limit)
}
