package rocketmq

import (
	"fmt"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestEndAfterTheTopicChanged holds what routing believes of a changed topic against the broker: it makes a half message
// visible whatever became of its queue, also where no consumer can read it.
func TestEndAfterTheTopicChanged(t *testing.T) {
	t.Parallel()
	const both = remoting.PermRead | remoting.PermWrite
	for name, tc := range map[string]struct {
		share            *remoting.QueueData // nil: the topic is deleted
		readable         bool                // by a consumer
		removed, unknown bool                // what Removed says
	}{
		"fewer queues to write": {&remoting.QueueData{Read: 4, Write: 2, Perm: both}, true, false, false},
		"read-only":             {&remoting.QueueData{Read: 4, Write: 4, Perm: remoting.PermRead}, true, false, false},
		"fewer queues":          {&remoting.QueueData{Read: 2, Write: 2, Perm: both}, false, true, false},
		"more queues to write":  {&remoting.QueueData{Read: 2, Write: 4, Perm: both}, false, true, false},
		"reading forbidden":     {&remoting.QueueData{Read: 4, Write: 4, Perm: remoting.PermWrite}, false, false, true},
		"topic deleted":         {nil, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, stacktest.Shared(t).Nameservers, TransportNative, nil)
			if _, err := f.client.Queues(t.Context(), f.topic); err != nil {
				t.Fatal(err)
			}
			m := f.message(3)
			h := f.sendHalf(m)
			if !f.client.Readable(f.topic, m.Queue) {
				t.Error("before the change, the queue is not readable")
			}
			f.change(tc.share)
			f.end(h, txn.DecisionCommit)
			await.Success(t, 10*time.Second, func() error { // the index has it, wherever it is
				copies, err := f.client.Visible(t.Context(), m, -1, time.Time{}, true)
				if err == nil && copies != 1 {
					err = fmt.Errorf("the index has %d copies, want 1", copies)
				}
				return err
			})
			if _, err := f.reader.Pull(t.Context(), m.Queue.Broker, "reader", f.topic, 3, 0, 32, 0); (err == nil) != tc.readable {
				t.Errorf("a consumer's pull: %v; want it to succeed: %t", err, tc.readable)
			}
			await.Success(t, 10*time.Second, func() error { // Removed asks again when its knowledge is a second old
				removed, err := f.client.Removed(t.Context(), f.topic, m.Queue)
				if removed != tc.removed || (err != nil) != tc.unknown {
					return fmt.Errorf("removed: got %t, %w; want %t, an error: %t", removed, err, tc.removed, tc.unknown)
				}
				return nil
			})
			if got := f.client.Readable(f.topic, m.Queue); got != tc.readable {
				t.Errorf("readable: got %t, want %t", got, tc.readable)
			}
			if got, want := f.client.Unread(f.topic, m.Queue), !tc.readable && tc.share != nil; got != want {
				t.Errorf("known not to be read: got %t, want %t", got, want)
			}
		})
	}
}

// change changes the topic on the only broker, or deletes it.
func (f *fixture) change(share *remoting.QueueData) {
	f.t.Helper()
	if share == nil {
		if err := f.reader.DeleteTopic(f.t.Context(), f.topic); err != nil {
			f.t.Fatal(err)
		}
		return
	}
	share.Broker = devstack.BrokerName(0)
	if err := f.reader.ChangeTopic(f.t.Context(), f.topic, *share); err != nil {
		f.t.Fatal(err)
	}
}

// TestQueueOfNoUse: what a broker says of a queue that it does not have is told apart from its being away.
func TestQueueOfNoUse(t *testing.T) {
	eachTransport(t, func(t *testing.T, f *fixture) {
		m := f.message(topicQueues)
		if _, err := f.client.SendHalf(t.Context(), m); txn.ReasonOf(err) != txn.ReasonNoQueue {
			t.Errorf("a queue that is not there: got %v, want that there is no such queue", err)
		}
		m = f.message(0)
		m.Topic = "no-such-topic"
		if _, err := f.client.SendHalf(t.Context(), m); !isUnavailable("no-such-topic")(err) || txn.ReasonOf(err) != txn.ReasonNoQueue {
			t.Errorf("a topic that is not there: got %v, want that there is no such topic", err)
		}
	})
}
