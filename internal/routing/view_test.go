package routing

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

func list(broker string, ids ...int) []txn.Queue {
	var queues []txn.Queue
	for _, id := range ids {
		queues = append(queues, txn.Queue{Broker: broker, ID: id})
	}
	return queues
}

func TestDescribe(t *testing.T) {
	for want, queues := range map[string][]txn.Queue{
		"none":                       nil,
		"broker-a:0":                 list("broker-a", 0),
		"broker-a:0-3":               list("broker-a", 0, 1, 2, 3),
		"broker-a:1-2,5, broker-b:0": append(list("broker-a", 1, 2, 5), list("broker-b", 0)...),
	} {
		if got := Describe(queues); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestChangeIsToldOnce: when several callers see another list, one of them gets the list before.
func TestChangeIsToldOnce(t *testing.T) {
	v := &view{topic: "t"}
	now := time.Now()
	steps := [][]txn.Queue{list("a", 0, 1), list("a", 0, 1), list("a", 0), nil, list("a", 0), list("a", 0, 1)}
	changes := []int{0, 0, 1, 1, 1, 1}
	for i, queues := range steps {
		var told atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, changed := v.notice(queues, now); changed {
					told.Add(1)
				}
			})
		}
		wg.Wait()
		if got := int(told.Load()); got != changes[i] {
			t.Errorf("step %d: told %d times, want %d", i, got, changes[i])
		}
	}
	before, _ := v.notice(list("b", 7), now.Add(time.Minute))
	if diff := cmp.Diff(list("a", 0, 1), before); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	if got := changedText(v.live.Load(), now.Add(72*time.Second)); got != "; changed 12s ago, from 2 queues" {
		t.Errorf("got %q", got)
	}
}

// TestPauseRefusesWhatMoves: during the pause of a newly accepted list, keys that both lists send to the same queue go
// on, and the others are refused. So replicas that know the new list and those that do not never send a key to
// different queues.
func TestPauseRefusesWhatMoves(t *testing.T) {
	hash, err := selector.New(selector.Spec{Type: selector.TypeHash})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	before, after := list("a", 0, 1, 2, 3), list("a", 0, 1, 2, 3, 4, 5, 6, 7)
	a := &acceptance{AcceptedQueues: txn.AcceptedQueues{Queues: after, Previous: before}, from: now.Add(20 * time.Second)}
	moved := 0
	for i := range 1000 {
		in := txn.SelectorInput{ShardKey: strings.Repeat("k", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()}
		old, _ := hash.Select(before, in)
		next, _ := hash.Select(after, in)
		got, n, err := a.choose(hash, in, now)
		switch old.Queue {
		case next.Queue:
			if err != nil || got.Queue != old.Queue || n != len(before) {
				t.Fatalf("a key that stays: got %v, %d, %v", got, n, err)
			}
		default:
			moved++
			e, ok := err.(*txn.Error) //nolint:errorlint // the very type
			if !ok || e.Code != txn.CodeBrokerUnavailable || e.RetryAfter != 20*time.Second || !strings.Contains(e.Detail, old.Queue.String()) {
				t.Fatalf("a key that moves: got %v, %v", got, err)
			}
		}
		if got, n, err := a.choose(hash, in, a.from); err != nil || got.Queue != next.Queue || n != len(after) {
			t.Fatalf("after the pause: got %v, %d, %v; want %s", got, n, err, next.Queue)
		}
	}
	if moved < 400 || moved > 600 {
		t.Errorf("%d of 1000 keys move, want about half", moved)
	}
}

func TestStates(t *testing.T) {
	layout := txn.TopicLayout{Brokers: []txn.BrokerLayout{
		{Broker: "a", Read: 2, Write: 1, Readable: 2, Writable: 1}, {Broker: "b", Read: 1, Write: 2, Readable: 1},
		{Broker: "d", Read: 1, Write: 2, Readable: 1, Writable: 2}}}
	got := states(layout, append(list("a", 0), list("c", 0)...))
	want := []txn.QueueState{
		{Queue: txn.Queue{Broker: "a", ID: 0}, Writable: true, Readable: true, Accepted: true},
		{Queue: txn.Queue{Broker: "a", ID: 1}, Readable: true},
		{Queue: txn.Queue{Broker: "b", ID: 0}, Readable: true},
		{Queue: txn.Queue{Broker: "b", ID: 1}},
		{Queue: txn.Queue{Broker: "c", ID: 0}, Accepted: true},
		{Queue: txn.Queue{Broker: "d", ID: 0}, Writable: true, Readable: true},
		{Queue: txn.Queue{Broker: "d", ID: 1}, Writable: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHealthOf(t *testing.T) {
	r := &Router{}
	of := func(accepted, live []txn.Queue, remaps bool) Health {
		return r.healthOf(&acceptance{AcceptedQueues: txn.AcceptedQueues{Queues: accepted}}, live, remaps, "")
	}
	both := append(list("a", 0, 1), list("b", 0, 1)...)
	for name, tc := range map[string]struct {
		got      Health
		err      bool
		degraded bool
		detail   string
	}{
		"all there":        {of(both, both, false), false, false, "4 queues"},
		"one broker away":  {of(both, list("a", 0, 1), false), false, true, "2 of 4 accepted queues can be used; missing b:0-1"},
		"new ones":         {of(list("a", 0, 1), both, false), false, false, "2 queues; not accepted: b:0-1"},
		"none of them":     {of(list("a", 0), list("b", 0), false), true, true, "0 of 1 accepted queues can be used; missing a:0; not accepted: b:0"},
		"others can remap": {of(list("a", 0), list("b", 0), true), false, true, "0 of 1 accepted queues can be used; missing a:0; not accepted: b:0"},
	} {
		if (tc.got.Err != nil) != tc.err || tc.got.Degraded != tc.degraded || tc.got.Detail != tc.detail {
			t.Errorf("%s: got %+v, want error %t, degraded %t, detail %q", name, tc.got, tc.err, tc.degraded, tc.detail)
		}
	}
}
