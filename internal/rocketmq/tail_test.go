package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// tailing is a Tail that runs until the test stops it.
type tailing struct {
	t        *testing.T
	messages chan Tailed
	stop     context.CancelFunc
	done     chan error
}

func (f *fixture) tail(fromStart bool) *tailing {
	ctx, cancel := context.WithCancel(context.Background())
	r := &tailing{t: f.t, messages: make(chan Tailed, 10000), stop: cancel, done: make(chan error, 1)}
	go func() {
		r.done <- f.client.Tail(ctx, f.topic, fromStart, func(m Tailed) error {
			r.messages <- m
			return nil
		})
	}()
	return r
}

// next waits for one more message.
func (r *tailing) next(limit time.Duration) (Tailed, error) {
	select {
	case m := <-r.messages:
		return m, nil
	case err := <-r.done:
		r.done <- err
		return Tailed{}, fmt.Errorf("tail ended: %w", err)
	case <-time.After(limit):
		return Tailed{}, errors.New("no message")
	}
}

// end stops it, and returns what was read and not taken yet.
func (r *tailing) end() []Tailed {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Errorf("tail: got %v, want nil after its context has ended", err)
	}
	close(r.messages)
	var rest []Tailed
	for m := range r.messages {
		rest = append(rest, m)
	}
	return rest
}

// send sends a numbered message to each queue.
func (f *fixture) sendNumbered(number int) {
	f.t.Helper()
	for id := range topicQueues {
		m := f.message(id)
		m.Body = []byte(strconv.Itoa(number))
		if err := f.client.Send(f.t.Context(), m, time.Time{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestTailFromTheStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
	const before, after = 100, 20 // per queue; more than one pull brings
	for n := range before {
		f.sendNumbered(n)
	}
	r := f.tail(true)
	numbers := make(map[txn.Queue]int)
	for got := 0; got < topicQueues*(before+after); got++ {
		if got == topicQueues*before { // those that were there are read: the rest comes while it waits
			for n := range after {
				f.sendNumbered(before + n)
			}
		}
		m, err := r.next(20 * time.Second)
		if err != nil {
			t.Fatalf("after %d messages: %v", got, err)
		}
		want := numbers[m.Message.Queue]
		if string(m.Message.Body) != strconv.Itoa(want) || m.Offset != int64(want) {
			t.Fatalf("queue %s: got message %s at %d, want %d", m.Message.Queue, m.Message.Body, m.Offset, want)
		}
		numbers[m.Message.Queue]++
	}
	if rest := r.end(); len(rest) != 0 || len(numbers) != topicQueues {
		t.Errorf("got %d messages too many, %d queues", len(rest), len(numbers))
	}
}

func TestTailFromTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
	const old = 10
	for n := range old {
		f.sendNumbered(n)
	}
	f.awaitNumbered(old)
	r := f.tail(false)
	next := make(map[txn.Queue]int)
	take := func(m Tailed) {
		number, err := strconv.Atoi(string(m.Message.Body))
		if want, ok := next[m.Message.Queue]; err != nil || number < old || ok && number != want {
			t.Errorf("queue %s: got message %s, want %d, and none of before", m.Message.Queue, m.Message.Body, want)
		}
		next[m.Message.Queue] = number + 1
	}
	for n, deadline := old, time.Now().Add(20*time.Second); len(next) < topicQueues; n++ { // nothing tells when it has begun
		if time.Now().After(deadline) {
			t.Fatalf("messages of %d queues came, want all", len(next))
		}
		f.sendNumbered(n)
		if m, err := r.next(50 * time.Millisecond); err == nil {
			take(m)
		}
	}
	for _, m := range r.end() {
		take(m)
	}
}

// awaitNumbered waits until so many messages are visible in each queue.
func (f *fixture) awaitNumbered(want int) {
	f.t.Helper()
	await.Success(f.t, 10*time.Second, func() error {
		found := f.visible()
		for q, messages := range found {
			if len(messages) != want {
				return fmt.Errorf("queue %s holds %d messages, want %d", q, len(messages), want)
			}
		}
		if len(found) != topicQueues {
			return fmt.Errorf("messages in %d queues", len(found))
		}
		return nil
	})
}

func TestTailedMessage(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := f.message(3)
		before := time.Now().Add(-time.Second)
		f.end(f.sendHalf(m), txn.DecisionCommit)
		r := f.tail(true)
		got, err := r.next(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got.Message, cmpopts.IgnoreFields(txn.Message{}, "Properties")); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
		if got.Offset != 0 || got.StoredAt.Before(before) || got.StoredAt.After(time.Now().Add(time.Second)) {
			t.Errorf("got offset %d, stored at %s, want 0, now", got.Offset, got.StoredAt)
		}
		r.end()
	})
}

func TestTailEndsWithTheHandlersError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
	f.sendNumbered(0)
	full := errors.New("full")
	calls := 0
	if err := f.client.Tail(t.Context(), f.topic, true, func(Tailed) error { calls++; return full }); !errors.Is(err, full) || calls != 1 {
		t.Errorf("got %v after %d calls, want the handler's error after one", err, calls)
	}
	if err := f.client.Tail(t.Context(), "no-such-topic", true, nil); !isUnavailable("no-such-topic")(err) {
		t.Errorf("a topic that does not exist: got %v, want broker_unavailable", err)
	}
}
