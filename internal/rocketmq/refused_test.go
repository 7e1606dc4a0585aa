package rocketmq

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// An end that names a place where the half message is not, as after a broker has lost its disk: what stands there may be
// nothing, another message, or the middle of one.
func TestEndOfAHalfMessageThatIsGone(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		h := f.sendHalf(f.message(0))
		other := f.message(1)
		otherHalf := f.sendHalf(other)
		f.end(otherHalf, txn.DecisionRollback)
		normal, err := f.reader.Send(t.Context(), other.Queue.Broker, &remoting.SendRequest{Topic: f.newTopic(1), Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := f.reader.Send(t.Context(), other.Queue.Broker, &remoting.SendRequest{Topic: f.newTopic(1), Body: []byte("x"), Half: true})
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*txn.Half){
			"half queue offset":        func(h *txn.Half) { h.QueueOffset++ },
			"beyond the log":           func(h *txn.Half) { h.CommitLogOffset += 1 << 40 },
			"before the log":           func(h *txn.Half) { h.CommitLogOffset = -1 },
			"middle of a message":      func(h *txn.Half) { h.CommitLogOffset += 10 },
			"another half message":     func(h *txn.Half) { h.CommitLogOffset = otherHalf.CommitLogOffset },
			"a normal message":         func(h *txn.Half) { h.CommitLogOffset = normal.CommitLogOffset },
			"a half message of others": func(h *txn.Half) { h.CommitLogOffset, h.QueueOffset = foreign.CommitLogOffset, foreign.QueueOffset },
		} {
			for _, d := range []txn.Decision{txn.DecisionCommit, txn.DecisionRollback} {
				wrong := h
				change(&wrong)
				if err := f.client.End(t.Context(), wrong, d, time.Time{}); txn.ReasonOf(err) != txn.ReasonHalfGone {
					t.Errorf("%s, %s: got %v, want that the half message is gone", name, d, err)
				}
			}
		}
		f.assertNothingVisible()
	})
}

func TestEndIsNotWritten(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		h := f.sendHalf(f.message(1))
		if err := f.client.End(t.Context(), h, txn.DecisionCommit, time.Now().Add(-time.Millisecond)); !txn.IsUnsent(err) {
			t.Errorf("later than it may be written: got %v, want that it is not sent", err)
		}
		elsewhere := h
		elsewhere.Broker = "broker-x"
		if err := f.client.End(t.Context(), elsewhere, txn.DecisionCommit, time.Time{}); !txn.IsUnsent(err) {
			t.Errorf("a broker that nobody knows: got %v, want that it is not sent", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.client.End(ctx, h, txn.DecisionCommit, time.Time{}); !txn.IsUnsent(err) {
			t.Errorf("with a cancelled context: got %v, want that it is not sent", err)
		}
		m := f.message(2)
		if err := f.client.Send(t.Context(), m, time.Now().Add(-time.Millisecond)); !txn.IsUnsent(err) {
			t.Errorf("sending later than it may be written: got %v, want that it is not sent", err)
		}
		f.assertNothingVisible()
	})
}

// Half messages and normal ones are refused alike.
func TestMessageThatIsNotStored(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		change func(*txn.Message)
		check  func(error) bool
		want   string
	}{
		"no such queue": {change: func(m *txn.Message) { m.Queue.ID = topicQueues }, check: txn.IsUnsent, want: "that it is not sent"},
		"no such topic": {
			change: func(m *txn.Message) { m.Topic = "no-such-topic" },
			check:  isUnavailable("no-such-topic"), want: "an error that names the topic",
		},
		"no such broker":    {change: func(m *txn.Message) { m.Queue.Broker = "broker-x" }, check: txn.IsUnsent, want: "that it is not sent"},
		"large body":        {change: func(m *txn.Message) { m.Body = bytes.Repeat([]byte("x"), 4<<20+1) }, check: has(txn.ReasonTooLarge), want: "that it is too large"},
		"cancelled context": {ctx: cancelled, check: txn.IsUnsent, want: "that it is not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, f *fixture) {
				m, ctx := f.message(1), tc.ctx
				if tc.change != nil {
					tc.change(&m)
				}
				if ctx == nil {
					ctx = t.Context()
				}
				if _, err := f.client.SendHalf(ctx, m); !tc.check(err) {
					t.Errorf("half message: got %v, want %s", err, tc.want)
				}
				if err := f.client.Send(ctx, m, time.Time{}); !tc.check(err) {
					t.Errorf("normal message: got %v, want %s", err, tc.want)
				}
				f.assertNothingVisible()
			})
		})
	}
}

func has(reason txn.SendReason) func(error) bool {
	return func(err error) bool { return txn.ReasonOf(err) == reason }
}

// isUnavailable: the error has a sentence for everybody, which names the topic.
func isUnavailable(topic string) func(error) bool {
	return func(err error) bool { return txn.IsUnsent(err) && strings.Contains(txn.WordsOf(err), topic) }
}

// The largest message that the service lets through is one that the broker takes.
func TestLargestMessage(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := f.message(0)
		properties := 0
		for name, value := range consumerProperties(m) {
			properties += len(name) + len(value) + 2
		}
		m.Body = bytes.Repeat([]byte("x"), txn.MaxMessageSize-properties)
		f.end(f.sendHalf(m), txn.DecisionCommit)
		if got := f.awaitVisible(m.Queue, 1)[0]; !bytes.Equal(got.Body, m.Body) {
			t.Errorf("got %d bytes, want %d", len(got.Body), len(m.Body))
		}
	})
}

func TestUnknownTransport(t *testing.T) {
	if _, err := New(Config{Nameservers: []string{"127.0.0.1:1"}, Group: "g", Transport: "pigeon", Timing: txn.DefaultTiming()}); err == nil {
		t.Error("got no error")
	}
}
