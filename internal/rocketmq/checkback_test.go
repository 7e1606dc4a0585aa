package rocketmq

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"
)

// asked is one check-back.
type asked struct {
	message txn.Message
	half    txn.Half
	at      time.Time
}

// inquiries keeps the check-backs of one client, by message id.
type inquiries struct {
	mu  sync.Mutex
	all map[string][]asked
}

func newInquiries() *inquiries { return &inquiries{all: make(map[string][]asked)} }

func (i *inquiries) handle(_ context.Context, m txn.Message, h txn.Half) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all[m.UniqKey] = append(i.all[m.UniqKey], asked{m, h, time.Now()})
}

// of returns the check-backs about one message so far.
func (i *inquiries) of(uniqKey string) []asked {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[uniqKey]
}

// asked is an error until the broker has asked about the message so often.
func (i *inquiries) asked(uniqKey string, times int) error {
	if got := len(i.of(uniqKey)); got < times {
		return fmt.Errorf("the broker has asked about %s %d times, want %d", uniqKey, got, times)
	}
	return nil
}

// await waits until the broker has asked about the message so often.
func (i *inquiries) await(t *testing.T, uniqKey string, times int) []asked {
	t.Helper()
	await.Success(t, 30*time.Second, func() error { return i.asked(uniqKey, times) })
	return i.of(uniqKey)
}

// eachImpatient is eachTransport, with a broker that asks back soon.
func eachImpatient(t *testing.T, test func(t *testing.T, f *fixture, i *inquiries)) {
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			stack, err := impatient()
			if err != nil {
				t.Fatal(err)
			}
			i := newInquiries()
			test(t, newFixture(t, stack.Nameservers(), transport, i.handle), i)
		})
	}
}

// Every half message that is not ended is asked about, at our handler and again and again; each time about another copy,
// whose coordinates end it.
func TestCheckback(t *testing.T) {
	eachImpatient(t, func(t *testing.T, f *fixture, i *inquiries) {
		const halves = 12
		messages, sent := make([]txn.Message, halves), make([]txn.Half, halves)
		began := time.Now().Truncate(time.Millisecond)
		for n := range messages {
			messages[n] = f.message(n % topicQueues)
			sent[n] = f.sendHalf(messages[n])
		}
		for n, m := range messages {
			got := i.await(t, m.UniqKey, 1)[0]
			if diff := cmp.Diff(m, got.message, cmpopts.IgnoreFields(txn.Message{}, "Properties")); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			want := txn.Half{UniqKey: m.UniqKey, Broker: m.Queue.Broker, TransactionID: m.UniqKey, FromCheck: true}
			if diff := cmp.Diff(want, got.half, cmpopts.IgnoreFields(txn.Half{}, "CommitLogOffset", "QueueOffset", "StoredAt")); diff != "" {
				t.Errorf("half message (-want +got):\n%s", diff)
			}
			if at := got.half.StoredAt; at.Before(began) || at.After(began.Add(time.Minute)) { // copies keep it
				t.Errorf("stored at %s, by the copy; it was sent after %s", at, began)
			}
			if got.half.CommitLogOffset <= sent[n].CommitLogOffset || got.half.QueueOffset <= sent[n].QueueOffset {
				t.Errorf("the copy is at %d, %d, the half message at %d, %d: want it behind", got.half.CommitLogOffset, got.half.QueueOffset,
					sent[n].CommitLogOffset, sent[n].QueueOffset)
			}
		}
		first, second := messages[0], messages[1]
		again := i.await(t, first.UniqKey, 2)
		if again[0].half.CommitLogOffset == again[1].half.CommitLogOffset {
			t.Error("asked twice about the same copy, want another each time")
		}
		f.end(again[1].half, txn.DecisionCommit)
		f.end(i.await(t, second.UniqKey, 1)[0].half, txn.DecisionRollback)
		if got := f.awaitVisible(first.Queue, 1)[0]; got.UniqKey() != first.UniqKey || string(got.Body) != string(first.Body) {
			t.Errorf("got message %s %q, want %s %q", got.UniqKey(), got.Body, first.UniqKey, first.Body)
		}
	})
}

// A half message that is ended is not asked about. The broker would have, when it asks about one that came later.
func TestNoCheckbackAfterTheEnd(t *testing.T) {
	eachImpatient(t, func(t *testing.T, f *fixture, i *inquiries) {
		committed, rolledBack, open := f.message(0), f.message(1), f.message(2)
		f.end(f.sendHalf(committed), txn.DecisionCommit)
		f.end(f.sendHalf(rolledBack), txn.DecisionRollback)
		f.sendHalf(open)
		i.await(t, open.UniqKey, 1)
		for _, m := range []txn.Message{committed, rolledBack} {
			if got := len(i.of(m.UniqKey)); got != 0 {
				t.Errorf("the broker asked %d times about a half message that was ended", got)
			}
		}
	})
}

// A client that was closed is asked no more: the group's other members are.
func TestCheckbacksGoToTheLivingMember(t *testing.T) {
	eachImpatient(t, func(t *testing.T, f *fixture, left *inquiries) {
		stayed := newInquiries()
		leaving := f.client
		f.client = f.newClient(f.nameservers, stayed.handle)
		if err := leaving.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			m := f.message(0)
			f.sendHalf(m)
			stayed.await(t, m.UniqKey, 1)
			if got := len(left.of(m.UniqKey)); got != 0 {
				t.Errorf("the closed client was asked %d times", got)
			}
		}
	})
}

// The immunity time is when the broker asks for the first time, at the earliest. It bounds our end, too: a later one is
// refused, unless it answers a check-back.
func TestImmunity(t *testing.T) {
	eachImpatient(t, func(t *testing.T, f *fixture, i *inquiries) {
		m := f.message(0)
		m.Immunity = 6 * time.Second // more than the broker's own
		born := time.Now()
		h := f.sendHalf(m)
		inTime := f.message(1)
		inTime.Immunity = time.Minute
		f.end(f.sendHalf(inTime), txn.DecisionCommit)
		first := i.await(t, m.UniqKey, 1)[0]
		if got := first.at.Sub(born); got < m.Immunity {
			t.Errorf("the broker asked after %s, want not before %s", got, m.Immunity)
		}
		for _, d := range []txn.Decision{txn.DecisionCommit, txn.DecisionRollback} {
			if err := f.client.End(t.Context(), h, d, time.Time{}); !txn.IsUnsent(err) {
				t.Errorf("%s after the immunity time: got %v, want that it is not sent", d, err)
			}
		}
		f.awaitVisible(inTime.Queue, 1)
		h.FromCheck = true
		f.end(h, txn.DecisionCommit)
		await.Success(t, 10*time.Second, func() error {
			if got := f.read(f.topic, m.Queue); len(got) != 1 || got[0].Properties.Get(remoting.PropImmunity) != "6" {
				return fmt.Errorf("got %d messages, want one with its immunity time", len(got))
			}
			return nil
		})
	})
}
