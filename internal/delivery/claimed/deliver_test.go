package claimed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/txsvc/txsvc/internal/txn"
)

// world is a database and a broker that say what the test wants, and write down what they are asked.
type world struct {
	log []string

	wait              time.Duration // until all is settled
	indexed           bool
	copies            int
	visible, end      error
	send              error
	removed           bool
	watched, rerouted error
	lost              bool // the lease
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) Defer(_ context.Context, l txn.Lease, wait time.Duration, reason string) error {
	w.note("defer %s %s %q", l.ID, wait, reason)
	return nil
}

func (w *world) GiveBack(_ context.Context, leases []txn.Lease, wait time.Duration, reason string) error {
	w.note("give %d back %s %q", len(leases), wait, reason)
	return nil
}

func (w *world) Reroute(_ context.Context, l txn.Lease, to txn.Route, uniqKey, _ string) (bool, error) {
	w.note("reroute %s to %s as %s", l.ID, to.Queue, uniqKey)
	return !w.lost, nil
}

func (w *world) MarkDelivered(id string, _ time.Time, _ bool) { w.note("mark %s", id) }

func (w *world) End(_ context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error {
	w.note("%s %s, bounded: %t", d, h.UniqKey, !writeBefore.IsZero())
	return w.end
}

func (w *world) Send(_ context.Context, m txn.Message, writeBefore time.Time) error {
	w.note("send %s, bounded: %t", m.TxID, !writeBefore.IsZero())
	return w.send
}

func (w *world) Visible(_ context.Context, m txn.Message, _ int64, _ time.Time, indexed bool) (int, error) {
	w.note("look for %s, indexed: %t", m.TxID, indexed)
	return w.copies, w.visible
}

func (w *world) Settled(string, string, time.Time) (time.Duration, bool) { return w.wait, w.indexed }
func (w *world) Indexed(string) bool                                     { return w.indexed }

func (w *world) Removed(context.Context, string, txn.Queue) (bool, error) {
	return w.removed, w.watched
}

func (w *world) Choose(context.Context, txn.Message) (txn.Route, error) {
	return txn.Route{Queue: txn.Queue{Broker: "b", ID: 2}}, w.rerouted
}

func (w *world) NewUniqKey() string { return "fresh" }

// deliverer returns a Deliverer in the world.
func (w *world) deliverer() (*Deliverer, *Recounts) {
	return New(Ports{
		Leases: w, Marks: w, Broker: w, Index: w, Queues: w, Evidence: w,
		Wake: func(at txn.Waiting) { w.note("wake %s on %s", at.Topic, at.Broker) },
	}, txn.DefaultTiming(), txn.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
}

// claim is one of a row with a half message.
func claim() txn.Claim {
	return txn.Claim{
		Lease:   txn.Lease{ID: "1", Epoch: 3, WriteBefore: time.Now().Add(time.Second)},
		Half:    txn.Half{UniqKey: "half", Broker: "a"},
		Message: txn.Message{UniqKey: "half", TxID: "1", Topic: "t", Queue: txn.Queue{Broker: "a", ID: 1}, Body: []byte("{}")},
		First:   7, Attempts: 3,
	}
}

// What a broker may answer.
var (
	unsent    = &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnreachable}
	maybeSent = &txn.SendError{Outcome: txn.MaybeSent, Reason: txn.ReasonSilent}
	halfGone  = &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonHalfGone}
)

func TestDeliver(t *testing.T) {
	backOff := 4 * txn.DefaultTiming().FirstBackoff // after three attempts
	const look = "look for 1, indexed: true"
	const end = "commit half, bounded: true"
	for name, tc := range map[string]struct {
		world world
		want  bool
		log   []string
	}{
		"ended":                                      {world{}, true, []string{look, end, "mark 1"}},
		"not settled: the row waits as long":         {world{wait: time.Second}, false, []string{`defer 1 1s "waiting until what was sent before is executed by the broker and in its index, or dropped"`}},
		"visible already: nothing is sent":           {world{copies: 1}, true, []string{look, "mark 1"}},
		"it cannot be looked for: nothing is sent":   {world{visible: unsent}, false, []string{look, fmt.Sprintf("defer 1 %s %q", backOff, "the broker could not be reached")}},
		"the broker may execute it: lease kept":      {world{end: maybeSent}, false, []string{look, end}},
		"not sent: given back":                       {world{end: unsent}, false, []string{look, end, fmt.Sprintf("defer 1 %s %q", backOff, "the broker could not be reached")}},
		"no half message any more: the body":         {world{end: halfGone}, true, []string{look, end, "send 1, bounded: true", "mark 1"}},
		"neither half message nor answer":            {world{end: halfGone, send: maybeSent}, false, []string{look, end, "send 1, bounded: true"}},
		"queue removed: another one, and rollback":   {world{removed: true}, false, []string{look, "reroute 1 to b:2 as fresh", "wake t on b", "rollback half, bounded: false"}},
		"removed after it was read there: no ends":   {world{removed: true, copies: 1}, false, []string{look, "reroute 1 to b:2 as fresh", "wake t on b"}},
		"removed, and the lease lost":                {world{removed: true, lost: true}, false, []string{look, "reroute 1 to b:2 as fresh"}},
		"nobody knows whether the queue is there":    {world{watched: errors.New("?")}, false, []string{fmt.Sprintf("defer 1 %s %q", backOff, "the broker could not be asked")}},
		"removed, and no queue is there":             {world{removed: true, rerouted: txn.Errorf(txn.CodeBrokerUnavailable, "no queue")}, false, []string{look, fmt.Sprintf("defer 1 %s %q", backOff, "no queue")}},
		"removed, unsettled: it has to be found out": {world{removed: true, wait: time.Second}, false, []string{`defer 1 1s "waiting until what was sent before is executed by the broker and in its index, or dropped"`}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.world.indexed = true
			d, _ := tc.world.deliverer()
			if got := d.Deliver(t.Context(), claim(), "resolver"); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if diff := cmp.Diff(tc.log, tc.world.log); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLook(t *testing.T) {
	for name, tc := range map[string]struct {
		world          world
		visible, known bool
	}{
		"visible":      {world{copies: 1}, true, true},
		"not visible":  {world{}, false, true},
		"not settled":  {world{wait: time.Second}, false, false},
		"not answered": {world{visible: unsent}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := tc.world.deliverer()
			if visible, known := d.Look(t.Context(), claim(), "relay"); visible != tc.visible || known != tc.known {
				t.Errorf("got visible %t, known %t, want %t, %t", visible, known, tc.visible, tc.known)
			}
		})
	}
}

// TestEvidenceReachesBehindTheLease: what the holder before has sent must have reached the broker before the evidence's time.
func TestEvidenceReachesBehindTheLease(t *testing.T) {
	var before time.Time
	w := &world{}
	d, _ := w.deliverer()
	d.ports.Evidence = asked{w, &before}
	c := claim()
	c.FreeSince = time.Now()
	d.Deliver(t.Context(), c, "resolver")
	if want := c.FreeSince.Add(-txn.DefaultTiming().Quiet()); !before.Equal(want) {
		t.Errorf("asked about what arrived before %s, want %s", before, want)
	}
}

// asked is the world's evidence, and notes what it is asked about.
type asked struct {
	*world
	before *time.Time
}

func (a asked) Settled(_, _ string, before time.Time) (time.Duration, bool) {
	*a.before = before
	return 0, true
}

func TestGiveBack(t *testing.T) {
	w := &world{}
	d, _ := w.deliverer()
	d.GiveBack(t.Context(), nil, nil)
	d.GiveBack(t.Context(), []txn.Claim{claim(), claim()}, nil)
	d.GiveBack(t.Context(), []txn.Claim{claim()}, fmt.Errorf("it is: %w", txn.Errorf(txn.CodeBrokerUnavailable, "no topic")))
	if diff := cmp.Diff([]string{`give 2 back 0s ""`, `give 1 back 0s "no topic"`}, w.log); diff != "" {
		t.Errorf("leases given back (-want +got):\n%s", diff)
	}
}

func TestBackOff(t *testing.T) {
	timing := txn.DefaultTiming()
	d, _ := (&world{}).deliverer()
	first, most := timing.FirstBackoff, timing.LongestBackoff
	for attempts, want := range map[int]time.Duration{0: first, 1: first, 2: 2 * first, 4: 8 * first, 8: most, 1 << 30: most} {
		if got := d.backOff(attempts); got != want {
			t.Errorf("after %d attempts: got %s, want %s", attempts, got, want)
		}
	}
}

// TestRecount: copies of what was delivered in another's place are counted once, after RecountAfter.
func TestRecount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		d, recounts := w.deliverer()
		d.Deliver(t.Context(), claim(), "resolver")
		w.log, w.copies = nil, 3
		time.Sleep(txn.DefaultTiming().RecountAfter - 1)
		recounts.CountDue(t.Context())
		if len(w.log) > 0 {
			t.Errorf("counted too early: %v", w.log)
		}
		time.Sleep(time.Nanosecond)
		recounts.CountDue(t.Context())
		recounts.CountDue(t.Context())
		if diff := cmp.Diff([]string{"look for 1, indexed: false"}, w.log); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
		var suspected dto.Metric
		if err := d.metrics.DuplicatesSuspected.Write(&suspected); err != nil || suspected.GetCounter().GetValue() != 2 {
			t.Errorf("got %v suspected duplicates, %v, want 2", suspected.GetCounter(), err)
		}
		for range recountsKept + 1 {
			d.Recount(claim())
		}
		if got := len(recounts.list); got != recountsKept || recounts.list[0].claim.Message.Body != nil {
			t.Errorf("%d recounts are kept, want %d, without bodies", got, recountsKept)
		}
	})
}
