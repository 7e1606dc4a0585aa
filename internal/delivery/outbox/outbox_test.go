package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// world is a database and a broker: it writes down what an Outbox does.
type world struct {
	mu  sync.Mutex
	log []string

	waiting  []txn.Claim
	poison   map[string]bool // ids that the broker refuses, and with them their batch
	sendErrs []error         // of the next sends; nil: stored
	seen     map[string]bool // ids that are visible already
	unknown  map[string]bool // ids of which that cannot be found out
	unread   bool            // consumers do not read the queues
	stays    map[string]bool // ids whose queue is there when somebody wants to reroute them
	markErr  error           // of marking all
	slow     time.Duration   // that the broker takes for each send
	sizes    map[string]int  // of messages; 100 when it says nothing
	closed   bool            // the gate
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) ClaimOutbox(_ context.Context, broker, topic string, _ int) ([]txn.Claim, error) {
	w.note("claim %s of %s", topic, broker)
	claims := w.waiting
	w.waiting = nil
	return claims, nil
}

func (w *world) MarkAll(_ context.Context, ids []string, _ time.Time) error {
	w.note("mark all %s", strings.Join(ids, " "))
	return w.markErr
}

func (w *world) MarkDelivered(id string, _ time.Time, ordered bool) {
	w.note("mark %s, ordered: %t", id, ordered)
}

func (w *world) HandOver(began time.Time) { w.note("hand over %d", began.Unix()) }

func (w *world) Park(_ context.Context, l txn.Lease, reason string) error {
	w.note("park %s: %s", l.ID, reason)
	return nil
}

func (w *world) Send(_ context.Context, m txn.Message, _ time.Time) error {
	return w.send([]txn.Message{m})
}

func (w *world) SendBatch(_ context.Context, messages []txn.Message, _ time.Time) error {
	return w.send(messages)
}

func (w *world) send(messages []txn.Message) error {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.TxID
	}
	w.note("send %s to %s", strings.Join(ids, " "), messages[0].Queue)
	time.Sleep(w.slow)
	if slices.ContainsFunc(ids, func(id string) bool { return w.poison[id] }) {
		return &txn.SendError{Outcome: txn.RefusedForGood, Reason: txn.ReasonTooLarge, Words: "too large"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sendErrs) == 0 {
		return nil
	}
	err := w.sendErrs[0]
	w.sendErrs = w.sendErrs[1:]
	return err
}

func (w *world) Size(m *txn.Message) int {
	if size := w.sizes[m.TxID]; size > 0 {
		return size
	}
	return 100
}

func (w *world) Unread(string, txn.Queue) bool { return w.unread }

func (w *world) IsOpen(txn.Group) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed
}

func (w *world) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *world) BackOff(name txn.Group, busy bool) time.Duration {
	w.note("back off %s on %s, busy: %t", name.Topic, name.Broker, busy)
	return time.Second
}

func (w *world) Reopen(txn.Group) { w.note("reopen") }

func (w *world) Look(_ context.Context, c txn.Claim, _ string) (visible, known bool) {
	return w.seen[c.Message.TxID], !w.unknown[c.Message.TxID]
}

func (w *world) Reroute(_ context.Context, c txn.Claim, _ string) bool {
	if w.stays[c.Message.TxID] {
		return false
	}
	w.note("reroute %s", c.Message.TxID)
	return true
}

func (w *world) GiveBack(_ context.Context, claims []txn.Claim, why error) {
	if len(claims) > 0 {
		w.note("give %s back: %v", ids(claims), why)
	}
}

func (w *world) Recount(c txn.Claim) { w.note("recount %s", c.Message.TxID) }

func ids(claims []txn.Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, c.Message.TxID)
	}
	return strings.Join(all, " ")
}

func (w *world) outbox() *Outbox {
	return New(Ports{Claims: w, Rows: w, Broker: w, Queues: w, Gate: w, Claimed: w},
		txn.DefaultTiming(), txn.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
}

// claims returns claims of one queue for ids of the form "1", "2*" (claimed before) or "3/k" (ordered, of shard key k).
func claims(specs ...string) (claims []txn.Claim) {
	for _, spec := range specs {
		id, key, ordered := strings.Cut(spec, "/")
		id, again := strings.CutSuffix(id, "*")
		c := txn.Claim{
			Lease:   txn.Lease{ID: id, WriteBefore: time.Now().Add(txn.DefaultTiming().WriteWithin)},
			Message: txn.Message{TxID: id, Topic: "t", ShardKey: key, Queue: txn.Queue{Broker: "a", ID: 1}},
			Outbox:  true, Ordered: ordered, Attempts: 1,
		}
		if again {
			c.Attempts = 2
		}
		claims = append(claims, c)
	}
	return claims
}

// What a broker may answer.
var (
	unsent    = &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnreachable}
	busy      = &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonBusy}
	noQueue   = &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNoQueue}
	maybeSent = &txn.SendError{Outcome: txn.MaybeSent, Reason: txn.ReasonSilent}
)

func TestSend(t *testing.T) {
	for name, tc := range map[string]struct {
		world     *world
		claims    []string
		delivered []string
		log       []string
	}{
		"one batch": {&world{}, []string{"1", "2", "3"}, []string{"1", "2", "3"},
			[]string{"send 1 2 3 to a:1", "reopen", "mark all 1 2 3"}},
		"claimed before: visible ones are not sent": {&world{seen: map[string]bool{"2": true}}, []string{"1*", "2*", "3"}, []string{"1", "2", "3"},
			[]string{"send 1 3 to a:1", "recount 1", "reopen", "mark all 1 3"}},
		"claimed before, unclear: its line waits": {&world{unknown: map[string]bool{"1": true}}, []string{"1*/k", "2/k", "3/m", "4"}, []string{"3", "4"},
			[]string{"give 2 back: <nil>", "send 3 4 to a:1", "reopen", "mark all 3 4"}},
		"a refused batch is halved": {&world{poison: map[string]bool{"3": true}}, []string{"1", "2", "3", "4"}, []string{"1", "2", "4"},
			[]string{
				"send 1 2 3 4 to a:1", "send 1 2 to a:1", "send 3 4 to a:1", "send 3 to a:1",
				"park 3: too large", "send 4 to a:1", "reopen", "mark all 1 2 4",
			}},
		"a parked message stops its line only": {&world{poison: map[string]bool{"1": true}}, []string{"1/k", "2/m", "3/k", "4"}, []string{"2", "4"},
			[]string{
				"send 1 2 3 4 to a:1", "send 1 2 to a:1", "send 1 to a:1", "park 1: too large", "send 2 to a:1",
				"give 3 back: <nil>", "send 4 to a:1", "reopen", "mark all 2 4",
			}},
		"too large for any broker: not sent": {&world{sizes: map[string]int{"1": txn.MaxMessageSize + 1}}, []string{"1", "2"}, []string{"2"},
			[]string{
				fmt.Sprintf("park 1: body and properties have %d bytes, the broker accepts %d", txn.MaxMessageSize+1, txn.MaxMessageSize),
				"send 2 to a:1", "reopen", "mark all 2",
			}},
		"not sent: all are given back": {&world{sendErrs: []error{unsent}}, []string{"1", "2"}, nil,
			[]string{"send 1 2 to a:1", "back off t on a, busy: false", "give 1 2 back: not sent"}},
		"busy": {&world{sendErrs: []error{busy}}, []string{"1"}, nil,
			[]string{"send 1 to a:1", "back off t on a, busy: true", "give 1 back: not sent"}},
		"no answer: the leases are kept, and nothing follows": {
			&world{sendErrs: []error{maybeSent}, sizes: map[string]int{"1": batchBytes}}, []string{"1", "2", "3"}, nil,
			[]string{"send 1 to a:1", "back off t on a, busy: false", "give 2 3 back: may be sent"}},
		"a part was sent before": {&world{sendErrs: []error{nil, unsent}, sizes: map[string]int{"1": batchBytes}}, []string{"1", "2"}, []string{"1"},
			[]string{"send 1 to a:1", "send 2 to a:1", "back off t on a, busy: false", "give 2 back: not sent", "mark all 1"}},
		"the queue is gone: others": {&world{sendErrs: []error{noQueue}}, []string{"1", "2/k"}, nil,
			[]string{"send 1 2 to a:1", "reroute 1", "reroute 2"}},
		"the broker says so, and it is there": {&world{sendErrs: []error{noQueue}, stays: map[string]bool{"1": true}}, []string{"1", "2"}, nil,
			[]string{"send 1 2 to a:1", "back off t on a, busy: false", "give 1 2 back: not sent"}},
		"nobody reads the queue: nothing is sent": {&world{unread: true}, []string{"1", "2"}, nil,
			[]string{"reroute 1", "reroute 2"}},
		"it is back after the first": {&world{unread: true, stays: map[string]bool{"2": true}}, []string{"1", "2", "3"}, nil,
			[]string{"reroute 1", "give 2 3 back: <nil>"}},
		"marks that cannot be written at once": {&world{markErr: errors.New("away")}, []string{"1", "2/k"}, []string{"1", "2"},
			[]string{"send 1 2 to a:1", "reopen", "mark all 1 2", "mark 1, ordered: false", "mark 2, ordered: true"}},
	} {
		t.Run(name, func(t *testing.T) {
			delivered := tc.world.outbox().Send(t.Context(), claims(tc.claims...))
			var got []string
			for id := range delivered {
				got = append(got, id)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.delivered, got); diff != "" {
				t.Errorf("delivered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.log, tc.world.log); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLateLeases: what cannot be written within its lease is given back, and the broker is not blamed for it.
func TestLateLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{slow: txn.DefaultTiming().WriteWithin + 1, sizes: map[string]int{"1": batchBytes}}
		if got := w.outbox().Send(t.Context(), claims("1", "2", "3/k")); len(got) != 1 || !got["1"] {
			t.Errorf("delivered %v, want 1", got)
		}
		if diff := cmp.Diff([]string{"send 1 to a:1", "give 2 3 back: <nil>", "reopen", "mark all 1"}, w.log); diff != "" {
			t.Errorf("what it did (-want +got):\n%s", diff)
		}
		w = &world{slow: txn.DefaultTiming().WriteWithin + 1, sendErrs: []error{unsent}}
		w.outbox().Send(t.Context(), claims("1"))
		if diff := cmp.Diff([]string{"send 1 to a:1", "give 1 back: <nil>"}, w.log); diff != "" {
			t.Errorf("what it did with one that became late while it was sent (-want +got):\n%s", diff)
		}
	})
}

// TestALateMessageStopsItsLine: also when the one behind it has a lease that ends later.
func TestALateMessageStopsItsLine(t *testing.T) {
	w := &world{sizes: map[string]int{"1": batchBytes}}
	all := claims("1/k", "2/k", "3/m")
	all[0].Lease.WriteBefore = time.Now().Add(-time.Second)
	w.outbox().Send(t.Context(), all)
	if diff := cmp.Diff([]string{"give 1 back: <nil>", "give 2 back: <nil>", "send 3 to a:1", "reopen", "mark all 3"}, w.log); diff != "" {
		t.Errorf("what it did (-want +got):\n%s", diff)
	}
}

// TestBatches: they are bounded in bytes and in messages, and keep the order of each queue; queues do not wait for one another.
func TestBatches(t *testing.T) {
	w := &world{sizes: map[string]int{"big": batchBytes, "half": batchBytes / 2, "other half": batchBytes / 2}}
	w.outbox().Send(t.Context(), claims("half", "other half", "one more", "big", "last"))
	if diff := cmp.Diff([]string{
		"send half other half to a:1", "send one more to a:1", "send big to a:1", "send last to a:1", "reopen", "mark all half other half one more big last",
	}, w.log); diff != "" {
		t.Errorf("batches by size (-want +got):\n%s", diff)
	}

	var many []string
	for i := range batchCount + 1 {
		many = append(many, fmt.Sprint(i))
	}
	w = &world{}
	w.outbox().Send(t.Context(), claims(many...))
	if want := []string{"send " + strings.Join(many[:batchCount], " ") + " to a:1", "send " + many[batchCount] + " to a:1"}; !slices.Equal(w.log[:2], want) {
		t.Errorf("got %q, want %d messages and one", w.log[:2], batchCount)
	}

	synctest.Test(t, func(t *testing.T) {
		w := &world{slow: time.Second}
		all := claims("1", "2", "3")
		all[1].Message.Queue.ID = 2
		start := time.Now()
		if got := w.outbox().Send(t.Context(), all); len(got) != 3 {
			t.Errorf("delivered %v, want all", got)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("two queues took %s, want them at once", took)
		}
		slices.Sort(w.log)
		if diff := cmp.Diff([]string{"mark all 1 3 2", "reopen", "reopen", "send 1 3 to a:1", "send 2 to a:2"}, w.log); diff != "" {
			t.Errorf("batches by queue (-want +got):\n%s", diff)
		}
	})
}

// TestRunGoesOnUntilNothingIsLeft: a group is claimed until a claim brings nothing, and not while it is closed.
func TestRunGoesOnUntilNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{waiting: claims("1")}
		o := w.outbox()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.Run(ctx); close(ended) }()
		o.Wake(txn.Group{Broker: "a", Topic: "t"})
		synctest.Wait()
		if diff := cmp.Diff([]string{"claim t of a", "send 1 to a:1", "reopen", "mark all 1", "claim t of a"}, w.log); diff != "" {
			t.Errorf("what it did (-want +got):\n%s", diff)
		}
		w.closed, w.log = true, nil
		o.Wake(txn.Group{Broker: "a", Topic: "t"})
		synctest.Wait()
		if len(w.log) > 0 || !o.Idle() {
			t.Errorf("it did %q while the gate was closed", w.log)
		}
		cancel()
		<-ended
	})
}

// tracked returns claims that this process has just committed; the number of their ids is when they began.
func tracked(specs ...string) []txn.Claim {
	all := claims(specs...)
	for i := range all {
		all[i].Tracked = true
		n, _ := strconv.Atoi(all[i].Message.TxID)
		all[i].CreatedAt = time.Unix(int64(n), 0)
	}
	return all
}

// TestRelay: what this process has committed is sent from memory, in batches, and the database is not asked.
func TestRelay(t *testing.T) {
	for name, tc := range map[string]struct {
		world *world
		log   []string
	}{
		"sent":          {&world{}, []string{"send 1 2 3 to a:1", "reopen", "mark 1, ordered: false", "mark 2, ordered: false", "mark 3, ordered: false", "hand over 1", "hand over 2", "hand over 3"}},
		"not sent":      {&world{sendErrs: []error{unsent}}, []string{"send 1 2 3 to a:1", "back off t on a, busy: false", "give 1 2 3 back: not sent", "hand over 1", "hand over 2", "hand over 3"}},
		"may be sent":   {&world{sendErrs: []error{maybeSent}}, []string{"send 1 2 3 to a:1", "back off t on a, busy: false", "hand over 1", "hand over 2", "hand over 3"}},
		"for good":      {&world{poison: map[string]bool{"1": true, "2": true, "3": true}}, []string{"send 1 2 3 to a:1", "send 1 to a:1", "park 1: too large", "send 2 3 to a:1", "send 2 to a:1", "park 2: too large", "send 3 to a:1", "park 3: too large", "hand over 1", "hand over 2", "hand over 3"}},
		"queue is gone": {&world{unread: true}, []string{"reroute 1", "reroute 2", "reroute 3", "hand over 1", "hand over 2", "hand over 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.world.outbox()
			for _, c := range tracked("1", "2", "3") {
				if !o.Relay(c) {
					t.Fatal("not taken")
				}
			}
			for o.step(t.Context(), txn.Group{Broker: "a", Topic: "t"}) {
			}
			if diff := cmp.Diff(tc.log, tc.world.log); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRelayGivesBack: what cannot be sent from memory soon does not stay there.
func TestRelayGivesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *Outbox, w *world)
		log    []string
	}{
		"the gate closes":      {func(_ *Outbox, w *world) { w.close() }, []string{"give 1 2 back: <nil>"}},
		"the lease ends":       {func(*Outbox, *world) { time.Sleep(2 * txn.DefaultTiming().WriteWithin) }, []string{"give 1 2 back: <nil>"}},
		"the process is ended": {func(*Outbox, *world) {}, []string{"give 1 2 back: <nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				o := w.outbox()
				for _, c := range tracked("1", "2") { // and nobody steps
					if !o.relay.add(txn.Group{Broker: "a", Topic: "t"}, c) {
						t.Fatal("not taken")
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); o.Run(ctx) }()
				tc.change(o, w)
				if name != "the process is ended" {
					time.Sleep(2 * sweepEvery)
				}
				stop()
				<-done
				if diff := cmp.Diff(tc.log, w.log); diff != "" {
					t.Errorf("what it did (-want +got):\n%s", diff)
				}
				if o.Relay(tracked("3")[0]) || o.Takes(txn.Group{Broker: "a", Topic: "t"}) {
					t.Error("taken after the end")
				}
			})
		})
	}
}

// TestRelayIsBounded: the memory for what waits is bounded, and free again when it is sent.
func TestRelayIsBounded(t *testing.T) {
	w := &world{}
	o := w.outbox()
	name := txn.Group{Broker: "a", Topic: "t"}
	large := tracked("1")[0]
	large.Message.Body = make([]byte, relayBytes/4)
	for range 4 {
		if !o.Takes(name) || !o.Relay(large) {
			t.Fatal("not taken")
		}
	}
	if o.Takes(name) || o.Relay(large) {
		t.Error("taken although the memory is full")
	}
	o.step(t.Context(), name)
	if !o.Takes(name) || o.relay.bytes != 0 || o.relay.count != 0 {
		t.Errorf("%d messages of %d bytes are left", o.relay.count, o.relay.bytes)
	}
	for range relayCount {
		o.Relay(tracked("2")[0])
	}
	if o.Takes(name) || o.Relay(large) {
		t.Error("taken although there are too many")
	}
	w.closed = true
	if o.Takes(name) {
		t.Error("takes for a group that is not open")
	}
}
