package messages_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// TestOneKeyOneQueue: whatever way a message of a key is sent, it appears in the queue that the selector picks for the key,
// and the answer says so.
func TestOneKeyOneQueue(t *testing.T) {
	f := newShared(t, nil)
	pick, err := selector.New(selector.Spec{Type: selector.Default})
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.client.Queues(t.Context(), f.topic)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]txn.Queue)
	sent := 0
	for i := range 16 {
		key := fmt.Sprintf("Kunde %d 東京", i)
		route, err := pick.Select(list, txn.SelectorInput{ShardKey: key})
		if err != nil {
			t.Fatal(err)
		}
		want[key] = route.Queue
		requests := []messages.Request{f.request(key, "1"), f.request(key, "1", "2", "3"), f.request(key, "1"), f.request(key, "1")}
		requests[2].DelayLevel = 1
		requests[3].DeliverAt = time.Now().Add(time.Second)
		for _, r := range requests {
			for _, mode := range []messages.Mode{messages.ModeSync, messages.ModeAsync, messages.ModeOneWay} {
				r.Mode = mode
				receipt := f.send(r)
				if receipt.Route != route || len(receipt.MessageIDs) != len(r.Messages) {
					t.Errorf("key %q, mode %s: got %+v, want route %+v", key, mode, receipt, route)
				}
				sent += len(r.Messages)
			}
		}
	}
	seen := make(map[string]bool)
	for queue, list := range f.await(sent) {
		for _, m := range list {
			if key := m.Properties.Get("SHARDING_KEY"); want[key] != queue {
				t.Errorf("a message of key %q is in queue %s, want %s", key, queue, want[key])
			}
			seen[m.UniqKey()] = true
		}
	}
	if len(seen) != sent {
		t.Errorf("got %d different ids, want %d", len(seen), sent)
	}
	if got := f.metric("sync", "SEND_OK"); got != 16*6 {
		t.Errorf("got %v messages counted as sent, want %d", got, 16*6)
	}
	if got := f.metric("oneway", "ACCEPTED"); got != 16*6 {
		t.Errorf("got %v one-way messages counted, want %d", got, 16*6)
	}
}

// What is visible is counted by queue, what is delayed is not.
func TestCountsByQueue(t *testing.T) {
	f := newShared(t, nil)
	r := f.request("k", "1", "2")
	queue := f.send(r).Route.Queue
	r.Mode = messages.ModeAsync
	f.send(r)
	delayed := f.request("k", "1")
	delayed.DelayLevel = 2
	f.send(delayed)
	if err := f.close(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := f.countedIn(queue); got != 4 {
		t.Errorf("got %v messages counted in queue %s, want 4", got, queue)
	}
}

func TestRequestsRefused(t *testing.T) {
	f := newShared(t, nil)
	good := func(change func(r *messages.Request)) messages.Request {
		r := f.request("k", "1")
		change(&r)
		return r
	}
	ahead := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for name, tc := range map[string]struct {
		request messages.Request
		want    string
	}{
		"no topic":       {good(func(r *messages.Request) { r.Topic = "" }), "/topic: is required: one of the configuration's topics, " + f.topic + ", other"},
		"unknown topic":  {good(func(r *messages.Request) { r.Topic = "nowhere" }), "/topic: is not one of the configuration's topics: " + f.topic + ", other"},
		"retry topic":    {good(func(r *messages.Request) { r.Topic = "%RETRY%g" }), "/topic: is not one of the configuration's topics: " + f.topic + ", other"},
		"no shard key":   {good(func(r *messages.Request) { r.ShardKey = "" }), "/shard_key: is required and must not be empty"},
		"mode":           {good(func(r *messages.Request) { r.Mode = "SYNC" }), "/mode: must be sync, async or oneway"},
		"no body":        {f.request("k", ""), "/body: body or body_base64 is required and must not be empty: RocketMQ has no empty messages"},
		"no body inside": {f.request("k", "1", ""), "/batch/1/body: body or body_base64 is required and must not be empty: RocketMQ has no empty messages"},
		"empty batch":    {messages.Request{Topic: f.topic, ShardKey: "k", Batch: true}, "/batch: must have at least one message"},
		"many":           {f.request("k", slices.Repeat([]string{"1"}, 1001)...), "/batch: has 1001 messages, at most 1000 are allowed: send the others as another batch"},
		"two delays":     {good(func(r *messages.Request) { r.DelayLevel, r.DeliverAt = 1, ahead(time.Hour) }), "/deliver_at: cannot be given with delay_level: choose one of them"},
		"level":          {good(func(r *messages.Request) { r.DelayLevel = 19 }), "/delay_level: must be a level from 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"},
		"far ahead":      {good(func(r *messages.Request) { r.DeliverAt = ahead(73 * time.Hour) }), "/deliver_at: is more than 3 days ahead, which is the most that RocketMQ accepts (timerMaxDelaySec)"},
		"delayed batch":  {messages.Request{Topic: f.topic, ShardKey: "k", Batch: true, DelayLevel: 1, Messages: f.request("k", "1").Messages}, "/batch: a batch cannot be delayed: RocketMQ stores it at once; send its messages one by one"},
		"property": {good(func(r *messages.Request) { r.Messages[0].Properties = map[string]string{"TIMER_DELIVER_MS": "1"} }),
			"/properties/TIMER_DELIVER_MS: the name TIMER_DELIVER_MS is reserved: RocketMQ's timer uses it"},
		"selector_arg": {good(func(r *messages.Request) { r.Messages[0].Tag = "*" }), "/tag: must not contain ||, begin or end with a space, or be *: consumers could not subscribe to it"},
	} {
		for _, mode := range []messages.Mode{"", messages.ModeAsync, messages.ModeOneWay} {
			r := tc.request
			if r.Mode == "" {
				r.Mode = mode
			}
			_, err := f.service.Send(t.Context(), r)
			if e, ok := errors.AsType[*txn.Error](err); !ok || e.Code != txn.CodeInvalidRequest || e.Detail != tc.want {
				t.Errorf("%s: got %v, want invalid_request: %s", name, err, tc.want)
			}
		}
	}
	f.await(0)
}

// What is too large is refused with what would fit, and that is accepted.
func TestSizes(t *testing.T) {
	f := newShared(t, nil)
	large := f.request("k", slices.Repeat([]string{strings.Repeat("x", 100_000)}, 50)...)
	_, err := f.service.Send(t.Context(), large)
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code != txn.CodePayloadTooLarge {
		t.Fatalf("got %v, want payload_too_large", err)
	}
	const want = "the 50 messages have 5003950 bytes with their properties, the broker accepts 4194304 at once: the first 41 would fit; it is not split, since a batch is stored whole or not at all"
	if e.Detail != want {
		t.Errorf("got %s, want %s", e.Detail, want)
	}
	large.Messages = large.Messages[:42]
	if _, err := f.service.Send(t.Context(), large); txn.CodeOf(err) != txn.CodePayloadTooLarge {
		t.Errorf("one more than would fit: got %v, want payload_too_large", err)
	}
	large.Messages = large.Messages[:41]
	f.send(large)
	single := f.request("k", strings.Repeat("x", 4<<20))
	if _, err := f.service.Send(t.Context(), single); txn.CodeOf(err) != txn.CodePayloadTooLarge {
		t.Errorf("4 MiB and properties: got %v, want payload_too_large", err)
	}
	f.send(f.request("k", strings.Repeat("x", 4<<20-100)))
	f.await(42)
}

// Messages of one queue in mode async are stored in the order in which they were taken on, one by one and in batches.
func TestAsyncKeepsOrder(t *testing.T) {
	f := newShared(t, nil)
	var want []string
	for i := range 200 {
		r := f.request("k", fmt.Sprint(i))
		if i%10 == 0 {
			r = f.request("k", fmt.Sprint(i), fmt.Sprint(i, "+"))
		}
		r.Mode = messages.ModeAsync
		want = append(want, f.send(r).MessageIDs...)
	}
	if err := f.close(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, list := range f.await(len(want)) {
		for i, m := range list {
			if m.UniqKey() != want[i] {
				t.Fatalf("message %d is %s, want %s", i, m.UniqKey(), want[i])
			}
		}
	}
	if got := f.metric("async", "SEND_OK"); got != float64(len(want)) {
		t.Errorf("got %v messages counted, want %d", got, len(want))
	}
	r := f.request("k", "late")
	r.Mode = messages.ModeAsync
	if _, err := f.service.Send(t.Context(), r); txn.CodeOf(err) != txn.CodeOverloaded {
		t.Errorf("after the stop: got %v, want overloaded", err)
	}
}

// TestBrokerStopped breaks a stack of its own: what is known while the broker does not answer, what is taken on, and
// what comes of it.
func TestBrokerStopped(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{BrokerConfig: stacktest.Patient(nil)}) // else it may drop what it finds when it wakes
	f := newFixture(t, stack.Nameservers(), selector.Spec{Type: selector.TypeRoundRobin}, func(c *messages.Config) {
		c.Timing.AnswerWithin, c.MaxWaiting, c.MaxWaitingBytes, c.MaxInFlight = 2*time.Second, 100, 1<<20, 8
	})
	f.send(f.request("k", "before"))
	stack.Broker(0).Pause()

	_, err := f.service.Send(t.Context(), f.request("k", "1", "2"))
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code != txn.CodeUnconfirmed || len(e.MessageIDs) != 2 || !strings.Contains(e.Detail, "may be stored") {
		t.Errorf("sync: got %v, want unconfirmed with the ids", err)
	}
	accepted, refused := 0, 0
	flood := f.request("k", "async")
	flood.Mode = messages.ModeAsync
	for range 500 {
		switch _, err := f.service.Send(t.Context(), flood); txn.CodeOf(err) {
		case txn.CodeOverloaded:
			refused++
		default:
			if err != nil {
				t.Fatal(err)
			}
			accepted++
		}
	}
	if accepted < 100 || accepted > 150 || refused == 0 {
		t.Errorf("%d messages were taken on and %d refused, want about 100 taken on", accepted, refused)
	}
	await.Success(t, 10*time.Second, func() error {
		if got := f.metric("async", "UNCONFIRMED"); got != queues {
			return fmt.Errorf("%v messages are unconfirmed, want one of each queue", got)
		}
		return nil
	})
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got := f.metric("async", "UNCONFIRMED"); got > queues {
			t.Fatalf("%v messages are unconfirmed: those that wait were written to a broker that does not answer", got)
		}
	}
	stack.Broker(0).Resume()
	if err := f.close(20 * time.Second); err != nil {
		t.Errorf("closing: %v", err)
	}
	found := f.await(1 + 2 + accepted) // those whose reply was missing are stored as well, and none is stored twice
	total := 0
	for _, list := range found {
		total += len(list)
	}
	if confirmed, unconfirmed := f.metric("async", "SEND_OK"), f.metric("async", "UNCONFIRMED"); int(confirmed+unconfirmed) != accepted {
		t.Errorf("%v confirmed and %v unconfirmed, want %d together", confirmed, unconfirmed, accepted)
	}
}

// TestBrokerGone: nothing is sent, and that is said; messages of mode async are tried until their time is over, or the stop.
func TestBrokerGone(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{})
	config := func(c *messages.Config) { c.Timing.AsyncWithin, c.MaxWaitingBytes = 2*time.Second, 1<<20 }
	f := newFixture(t, stack.Nameservers(), selector.Spec{Type: selector.Default}, config)
	f.send(f.request("k", "before"))
	stack.Broker(0).Kill()
	await.Success(t, 20*time.Second, func() error {
		for _, mode := range []messages.Mode{messages.ModeSync, messages.ModeOneWay} {
			r := f.request("k", "x")
			r.Mode = mode
			_, err := f.service.Send(t.Context(), r)
			if e, ok := errors.AsType[*txn.Error](err); !ok || e.Code != txn.CodeBrokerUnavailable || !strings.Contains(e.Detail, "nothing was sent") {
				return fmt.Errorf("mode %s: got %w, want broker_unavailable", mode, err)
			}
		}
		return nil
	})
	r := f.request("k", "late")
	r.Mode = messages.ModeAsync
	f.send(r)
	await.Success(t, 10*time.Second, func() error {
		if got := f.metric("async", "NOT_SENT"); got != 1 {
			return fmt.Errorf("%v messages are given up, want 1", got)
		}
		return nil
	})
	r.Messages[0].Body = make([]byte, 400_000)
	f.send(r)
	f.send(r)
	if _, err := f.service.Send(t.Context(), r); txn.CodeOf(err) != txn.CodeOverloaded {
		t.Errorf("more bytes than may wait: got %v, want overloaded", err)
	}
	if err := f.close(100 * time.Millisecond); err == nil || err.Error() != "2 of 2 messages of mode async were not confirmed before the stop" {
		t.Errorf("closing: got %v, want that 2 of 2 are lost", err)
	}
	if got := f.metric("async", "DROPPED"); got != 2 {
		t.Errorf("%v messages are counted as dropped, want 2", got)
	}
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.await(1)
}
