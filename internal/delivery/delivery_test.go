package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// world stands for what the peers of this package use. It says what the test wants, and writes down what it is asked.
type world struct {
	mu  sync.Mutex
	log []string

	own        bool
	ownErr     error
	resolution txn.Resolution
	decideErr  error
	behind     bool // the evidence does not keep up
	held       bool // somebody else has the row's lease
	stuck      bool // the message cannot be delivered
	due        []int
	claimErr   error
	groups     []txn.Group
	groupsErr  error
	busy       bool // outbox and lines are being delivered
	count      txn.Pending
	countErr   error
	silent     string // a broker
	notified   func()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// want compares what was noted since the last call.
func (w *world) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(want, w.log) {
		t.Errorf("what was done (-want +got):\n%s", cmp.Diff(want, w.log))
	}
	w.log = nil
}

func (w *world) OwnHalf(context.Context, string, string) (bool, error) { return w.own, w.ownErr }

func (w *world) Decide(_ context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error) {
	w.note("decide %s for %s", h.UniqKey, m.TxID)
	return w.resolution, &txn.Transaction{ID: m.TxID, Topic: "t", Route: txn.Route{Queue: txn.Queue{Broker: "a"}}}, w.decideErr
}

func (w *world) ClaimDue(_ context.Context, brokers []string, _ int) ([]txn.Claim, error) {
	w.note("claim of %s", strings.Join(brokers, " "))
	if len(w.due) == 0 {
		return nil, w.claimErr
	}
	n := w.due[0]
	w.due = w.due[1:]
	return make([]txn.Claim, n), w.claimErr
}

func (w *world) ClaimOne(_ context.Context, id, uniqKey string) (txn.Claim, bool, error) {
	w.note("claim %s with %s", id, uniqKey)
	return txn.Claim{Half: txn.Half{UniqKey: uniqKey, CommitLogOffset: 1}}, !w.held, w.claimErr
}

func (w *world) Deliver(_ context.Context, c txn.Claim, path string) bool {
	if c.Half.UniqKey != "" {
		w.note("deliver %s at %d as %s", c.Half.UniqKey, c.Half.CommitLogOffset, path)
	}
	return !w.stuck
}

func (w *world) Settle(time.Time)   { w.note("settle") }
func (w *world) HandOver(time.Time) { w.note("hand over") }

func (w *world) Rollback(_ context.Context, h txn.Half) { w.note("rollback %s", h.UniqKey) }

func (w *world) KeepsUp(string) bool                 { return !w.behind }
func (w *world) Claimable(brokers []string) []string { return brokers }
func (w *world) Brokers() []string                   { return []string{"a", "b"} }
func (w *world) Answering(broker string) bool        { return broker != w.silent }
func (w *world) Idle() bool                          { return !w.busy }
func (w *world) Wake(name txn.Group)                 { w.note("wake %s on %s", name.Topic, name.Broker) }
func (w *world) Look(topic string)                   { w.note("look at the lines of %s", topic) }
func (w *world) Groups(context.Context) ([]txn.Group, error) {
	w.note("groups")
	return w.groups, w.groupsErr
}
func (w *world) Notify(context.Context) error { w.note("notify"); return nil }

func (w *world) Listen(ctx context.Context, woken func()) {
	w.notified = woken
	<-ctx.Done()
}

func (w *world) Pending(context.Context) (txn.Pending, error) {
	w.note("count")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count, w.countErr
}

// counts sets what the database says is pending.
func (w *world) counts(p txn.Pending, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count, w.countErr = p, err
}

func (w *world) NoteWaiting(_ context.Context, broker, reason string, _ int) error {
	w.note("note in rows of %s: %s", broker, reason)
	return nil
}

var (
	timing = txn.DefaultTiming()
	quiet  = slog.New(slog.DiscardHandler)
	half   = txn.Half{UniqKey: "half", Broker: "a", CommitLogOffset: 9, FromCheck: true}
)

func metrics() *txn.Metrics { return txn.NewMetrics(prometheus.NewRegistry()) }

func TestCheckback(t *testing.T) {
	ours := txn.Message{TxID: "1", Kind: "k"}
	const decide, claim, deliver, rollback = "decide half for 1", "claim 1 with half", "deliver half at 9 as checkback", "rollback half"
	for name, tc := range map[string]struct {
		world   *world
		message txn.Message
		log     []string
	}{
		"committed: the copy that was asked about is ended": {&world{own: true, resolution: txn.ResolutionCommit}, ours, []string{decide, claim, deliver}},
		"committed, and held by somebody":                   {&world{own: true, resolution: txn.ResolutionCommit, held: true}, ours, []string{decide, claim}},
		"committed, and too little is known of the broker":  {&world{own: true, resolution: txn.ResolutionCommit, behind: true}, ours, []string{decide}},
		"rolled back":                          {&world{own: true, resolution: txn.ResolutionRollback}, ours, []string{decide, rollback}},
		"delivered: a copy too many":           {&world{own: true, resolution: txn.ResolutionDelivered}, ours, []string{decide, rollback}},
		"not decided":                          {&world{own: true}, ours, []string{decide}},
		"the database is away":                 {&world{own: true, resolution: txn.ResolutionRollback, decideErr: errors.New("away")}, ours, []string{decide}},
		"it is not known whose it is":          {&world{own: true, ownErr: errors.New("away")}, ours, nil},
		"another service's":                    {&world{}, ours, nil},
		"an index probe":                       {&world{}, txn.Message{Kind: txn.ProbeKind}, []string{rollback}},
		"a transaction's that calls itself so": {&world{}, txn.Message{TxID: "1", Kind: txn.ProbeKind}, nil},
		"no transaction's":                     {&world{own: true}, txn.Message{Kind: "k"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			cb := &checkbacks{decisions: w, claims: w, evidence: w, claimed: w, timing: timing, metrics: metrics(), log: quiet}
			cb.answer(t.Context(), tc.message, half)
			w.want(t, tc.log...)
		})
	}
}

// TestForeignIsLoggedSometimes: and for as long after the last one it degrades the service.
func TestForeignIsLoggedSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f foreign
		if f.isRecent() {
			t.Error("recent before there was one")
		}
		for _, tc := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {1, false}, {foreignFor - 2, false}, {1, true}, {1, false}} {
			time.Sleep(tc.after)
			if got := f.note(); got != tc.want {
				t.Errorf("after another %s: got %t, want %t", tc.after, got, tc.want)
			}
		}
		time.Sleep(foreignFor - 1)
		if !f.isRecent() {
			t.Error("forgotten too early")
		}
		time.Sleep(time.Nanosecond)
		if f.isRecent() {
			t.Error("remembered for too long")
		}
	})
}

func TestAttempts(t *testing.T) {
	attempt := func(id, uniqKey string, via txn.Via) *txn.Attempt {
		return &txn.Attempt{
			Kind: &txn.Kind{Name: "k"}, Request: txn.Request{ID: id}, Via: via,
			Message: txn.Message{TxID: id}, Half: txn.Half{UniqKey: uniqKey},
		}
	}
	for name, tc := range map[string]struct {
		world *world
		via   txn.Via
		log   []string
		known bool
	}{
		"committed":                        {&world{resolution: txn.ResolutionCommit}, txn.ViaHalf, []string{"decide 1 for id", "hand over", "wake t on a"}, true},
		"delivered by another":             {&world{resolution: txn.ResolutionDelivered}, txn.ViaHalf, []string{"decide 1 for id", "hand over", "wake t on a"}, true},
		"rolled back":                      {&world{resolution: txn.ResolutionRollback}, txn.ViaHalf, []string{"decide 1 for id", "settle", "rollback 1"}, true},
		"rolled back, no half message":     {&world{resolution: txn.ResolutionRollback}, txn.ViaOutbox, []string{"decide 1 for id", "settle"}, true},
		"still running":                    {&world{}, txn.ViaHalf, []string{"decide 1 for id"}, false},
		"the database is away for a while": {&world{decideErr: errors.New("away")}, txn.ViaHalf, []string{"decide 1 for id"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			as := newAttempts(w, w, w, func(at txn.Waiting) { w.Wake(txn.Group{Broker: at.Broker, Topic: at.Topic}) }, timing, metrics())
			a := attempt("id", "1", tc.via)
			as.add(a)
			as.decideAll(t.Context())
			w.want(t, tc.log...)
			if found := as.find("id"); (found == nil) != tc.known {
				t.Errorf("found %v, want it to be forgotten: %t", found, tc.known)
			}
		})
	}
	t.Run("several with one id", func(t *testing.T) {
		w := &world{decideErr: errors.New("away")}
		as := newAttempts(w, w, w, nil, timing, metrics())
		first, second := attempt("id", "1", txn.ViaHalf), attempt("id", "2", txn.ViaHalf)
		as.add(first)
		as.add(second)
		as.decideAll(t.Context())
		if len(w.log) != 1 {
			t.Errorf("it did %q, want one question to a database that is away", w.log)
		}
		as.remove(first)
		if got := as.find("id"); got != second {
			t.Errorf("found %v, want the other one", got)
		}
		if as.remove(second); as.find("id") != nil || len(as.byID) > 0 {
			t.Error("it is not forgotten")
		}
	})
}

func TestResolverGoesOnWhileClaimsAreFull(t *testing.T) {
	w := &world{due: []int{claimLimit, claimLimit, 1}}
	r := &resolver{claims: w, brokers: w, evidence: w, claimed: w, timing: timing, log: quiet}
	r.deliverDue(t.Context())
	w.want(t, "claim of a b", "claim of a b", "claim of a b")
	w.claimErr = errors.New("away")
	r.deliverDue(t.Context())
	w.want(t, "claim of a b")
}

// beside runs a loop beside the test, which ends after it.
func beside(t *testing.T, loop func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { loop(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// TestAnnounce: other replicas are asked for help when this one has not delivered soon what came, and at most once in
// announceAfter; and at once when an operator asks.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		r := newReplicas(w, w, w, w, timing, quiet)
		beside(t, r.announce)
		came := func() { pause.Wake(r.behind); synctest.Wait() }
		came()
		time.Sleep(announceAfter)
		synctest.Wait()
		w.want(t) // it has been delivered meanwhile
		w.busy = true
		came()
		time.Sleep(announceAfter - 1)
		w.want(t)
		came()
		came()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.want(t, "notify")
		time.Sleep(announceAfter)
		synctest.Wait()
		w.want(t, "notify") // for what came meanwhile
		w.busy = false
		pause.Wake(r.asked)
		synctest.Wait()
		w.want(t, "notify")
	})
}

// TestSeek: what waits is looked for at the start, now and then, and when another replica asks for help.
func TestSeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{groups: []txn.Group{{Broker: "a", Topic: "t"}, {Topic: "u"}}}
		r := newReplicas(w, w, w, w, timing, quiet)
		found := []string{"groups", "wake t on a", "look at the lines of u"}
		beside(t, r.listen)
		beside(t, r.seek)
		synctest.Wait()
		w.want(t, found...)
		time.Sleep(timing.PollEvery)
		synctest.Wait()
		w.want(t, found...)
		w.notified()
		synctest.Wait()
		w.want(t, found...)
		w.groupsErr = errors.New("away")
		w.notified()
		synctest.Wait()
		w.want(t, "groups")
	})
}

// TestPending: the age of the oldest grows, and the counts vanish, while what is pending cannot be read; and rows of a
// broker that does not answer say so.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{count: txn.Pending{Count: 3, Parked: 1, Oldest: time.Minute}, silent: "b"}
		p := newPending(w, w, w, timing, quiet)
		registry := prometheus.NewRegistry()
		registry.MustRegister(p)
		want := func(values ...float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []float64
			for _, family := range families { // sorted by name: oldest, parked, pending, reading failed
				got = append(got, family.GetMetric()[0].GetGauge().GetValue())
			}
			if diff := cmp.Diff(values, got); diff != "" {
				t.Errorf("gauges (-want +got):\n%s", diff)
			}
		}
		want(0, 0) // nothing was read yet
		beside(t, p.measureAll)
		synctest.Wait()
		w.want(t, "count", "note in rows of b: "+txn.Silent("b"))
		want(60, 1, 3, 0)
		w.counts(txn.Pending{}, errors.New("away"))
		time.Sleep(gaugesEvery)
		synctest.Wait()
		w.want(t, "count")
		want(65, 1)
		w.counts(txn.Pending{}, nil)
		time.Sleep(gaugesEvery)
		synctest.Wait()
		want(0, 0, 0, 0)
		w.counts(txn.Pending{}, errors.New("away")) // something may have come since
		time.Sleep(gaugesEvery)
		synctest.Wait()
		want(gaugesEvery.Seconds(), 1)
	})
}
