package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// told is the state of the name servers, which the test sets.
type told struct {
	Broker
	mu     sync.Mutex
	queues []txn.Queue
	absent []string
}

func (b *told) tell(queues []txn.Queue, absent ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues, b.absent = queues, absent
}

func (b *told) Queues(_ context.Context, topic string) ([]txn.Queue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queues) == 0 {
		return nil, &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNoQueue, Words: "topic " + topic + " does not exist"}
	}
	return b.queues, nil
}

func (b *told) Topic(context.Context, string) (txn.TopicLayout, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return txn.TopicLayout{Absent: b.absent}, nil
}

// cutOff is a real database that can be out of reach.
type cutOff struct {
	*accepted.Lists
	down atomic.Bool
}

var errDown = errors.New("out of reach")

func (s *cutOff) AcceptedQueues(ctx context.Context, topics []string) (map[string]txn.AcceptedQueues, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.Lists.AcceptedQueues(ctx, topics)
}

func newStore(t *testing.T) *accepted.Lists {
	t.Helper()
	db, err := postgres.Open(t.Context(), stacktest.NewMigrated(t), txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return accepted.New(db)
}

// replica is a router with a view of its own of name servers and database.
func replica(t testing.TB, store Store, queues []txn.Queue) (*Router, *told, txn.Destination) {
	t.Helper()
	hash, err := selector.New(selector.Spec{Type: selector.TypeHash})
	if err != nil {
		t.Fatal(err)
	}
	d := txn.Destination{Topic: "orders", Selector: hash, OnChange: txn.OnChangeRefuse}
	b := &told{}
	b.tell(queues)
	r := New(Config{Topics: map[string]txn.Destination{"orders": d}, Timing: txn.DefaultTiming()}, b, store, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	return r, b, d
}

func wantRefused(t *testing.T, err error, code txn.Code, detail string) {
	t.Helper()
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Detail, detail) {
		t.Errorf("got %v, want %s with %q", err, code, detail)
	}
}

// TestFirstUse: a list from which no broker is missing becomes the first accepted one. Then all replicas use it, also
// one that sees fewer brokers, and one that cannot reach the database.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	store := &cutOff{Lists: newStore(t)}
	both := append(list("a", 0), list("b", 0)...)
	first, names, d := replica(t, store, list("a", 0))
	store.down.Store(true)
	_, err := first.Route(t.Context(), d, txn.SelectorInput{ShardKey: "k"})
	wantRefused(t, err, txn.CodeDatabaseUnavailable, "which queues of topic orders are accepted")
	store.down.Store(false)
	names.tell(list("a", 0), "b")
	_, err = first.Route(t.Context(), d, txn.SelectorInput{ShardKey: "k"})
	wantRefused(t, err, txn.CodeBrokerUnavailable, "none is made while b has no master")
	names.tell(nil)
	_, err = first.Route(t.Context(), d, txn.SelectorInput{ShardKey: "k"})
	wantRefused(t, err, txn.CodeBrokerUnavailable, "topic orders has no queue that can be used, and no accepted list")
	names.tell(both)
	want := make(map[string]txn.Queue)
	for i := range 20 {
		key := fmt.Sprint("key-", i)
		route, err := first.Route(t.Context(), d, txn.SelectorInput{ShardKey: key})
		if err != nil {
			t.Fatal(err)
		}
		want[key] = route.Queue
	}
	second, _, d := replica(t, store, list("a", 0))
	refused := 0
	for key, queue := range want {
		route, err := second.Route(t.Context(), d, txn.SelectorInput{ShardKey: key})
		if queue.Broker == "a" {
			if err != nil || route.Queue != queue {
				t.Errorf("%s: got %v, %v, want %s", key, route.Queue, err, queue)
			}
			continue
		}
		refused++
		wantRefused(t, err, txn.CodeBrokerUnavailable, "queue b:0 of topic orders cannot be used now, and the selector keeps its keys (on_change: refuse)")
	}
	if refused == 0 || refused == len(want) {
		t.Errorf("%d of %d keys are refused, want some", refused, len(want))
	}
	store.down.Store(true)
	if _, err := first.Route(t.Context(), d, txn.SelectorInput{ShardKey: "k"}); err != nil {
		t.Errorf("the database is gone, and the list is known: got %v", err)
	}
}

// TestAcceptanceIsTakenOver: a router that runs learns of another list by itself, also after a time without the database.
func TestAcceptanceIsTakenOver(t *testing.T) {
	t.Parallel()
	real := newStore(t)
	store := &cutOff{Lists: real}
	r, _, d := replica(t, store, list("a", 0, 1))
	if _, err := real.Accept(t.Context(), "orders", list("a", 0), "", 0, 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if _, n, err := r.route(t.Context(), d, txn.SelectorInput{ShardKey: "k"}); err != nil || n != 1 {
		t.Fatalf("got %d queues, %v, want the accepted one", n, err)
	}
	store.down.Store(true)
	if _, err := real.Accept(t.Context(), "orders", list("a", 0, 1), "", 1, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, n, err := r.route(t.Context(), d, txn.SelectorInput{ShardKey: "k"}); err != nil || n != 1 {
		t.Errorf("without the database: got %d queues, %v, want the one that was accepted before", n, err)
	}
	store.down.Store(false)
	began := time.Now()
	for {
		_, n, err := r.route(t.Context(), d, txn.SelectorInput{ShardKey: "k"})
		if err == nil && n == 2 {
			break
		}
		if time.Since(began) > 4*r.config.Timing.AcceptedEvery {
			t.Fatalf("after %s still: %d queues, %v", time.Since(began), n, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if told, err := r.TopicQueues(t.Context(), "orders"); err != nil || told.Version != 2 || !told.Queues[1].Accepted {
		t.Errorf("got %+v, %v, want version 2", told, err)
	}
}

// TestAnotherSelector: a replica refuses ordered messages when its selector is not the accepted one. When its selector
// is accepted, the replicas with the old one refuse them. No replica routes any before the pause is over.
func TestAnotherSelector(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	queues := list("a", 0, 1, 2, 3)
	if _, err := store.AcceptFirst(t.Context(), "orders", queues, ""); err != nil { // by a version that did not record selectors
		t.Fatal(err)
	}
	before, _, d := replica(t, store, queues)
	after, _, other := replica(t, store, queues)
	d.OrderedSelector, other.OrderedSelector = `{"type":"hash"}`, `{"type":"consistent"}`
	in := txn.SelectorInput{ShardKey: "k"}
	for range 2 { // the first one records its selector
		if _, err := before.Route(t.Context(), d, in); err != nil {
			t.Fatal(err)
		}
		_, err := after.Route(t.Context(), other, in)
		wantRefused(t, err, txn.CodeBrokerUnavailable, "the selector of ordered messages of topic orders is another one than the accepted one")
		_, err = after.RouteKnown(t.Context(), other, in)
		wantRefused(t, err, txn.CodeBrokerUnavailable, "txsvc route accept orders accepts it")
	}
	plain := d
	plain.OrderedSelector = ""
	if _, err := after.Route(t.Context(), plain, in); err != nil {
		t.Errorf("messages without an order: got %v, want them routed", err)
	}
	const pause = 500 * time.Millisecond
	list, err := store.Accept(t.Context(), "orders", queues, other.OrderedSelector, 1, pause)
	if err != nil || list.Selector != other.OrderedSelector || list.PreviousSelector != d.OrderedSelector {
		t.Fatalf("got %+v, %v", list, err)
	}
	before.poll(t.Context())
	after.poll(t.Context())
	_, err = before.Route(t.Context(), d, in)
	wantRefused(t, err, txn.CodeBrokerUnavailable, "another one than the accepted one")
	for began := time.Now(); ; {
		left := time.Until(after.views["orders"].accepted.Load().from)
		_, err := after.Route(t.Context(), other, in)
		if left > pause/10 {
			wantRefused(t, err, txn.CodeBrokerUnavailable, "takes effect in 1s; they are refused until then")
			if _, err := after.Route(t.Context(), plain, in); err != nil {
				t.Errorf("messages without an order in the pause: got %v", err)
			}
		}
		if err == nil {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("after the pause: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, err = before.Route(t.Context(), d, in)
	wantRefused(t, err, txn.CodeBrokerUnavailable, "another one than the accepted one")
	if list, err = store.Accept(t.Context(), "orders", queues, "", 2, 0); err != nil || list.Selector != other.OrderedSelector {
		t.Errorf("without ordered kinds: got %+v, %v, want the selector as it was", list, err)
	}
}
