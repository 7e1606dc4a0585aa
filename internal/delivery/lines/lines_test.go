package lines

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

	"github.com/txsvc/txsvc/internal/txn"
)

// world is a database with lines, and what delivers claims. It writes down what is asked of it.
type world struct {
	mu  sync.Mutex
	log []string

	lines    map[string][]txn.Claim // pending, by shard key
	stuck    map[string]bool        // ids that cannot be delivered
	slow     time.Duration          // that one delivery takes
	closed   bool                   // no broker can be sent to
	claimErr error
	lookErr  error
	flushErr error
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) DueLines(_ context.Context, _, after string, _ []string, limit int) (due []string, last string, err error) {
	w.note("look after %q", after)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.lines {
		if key > after {
			due = append(due, key)
		}
	}
	slices.Sort(due)
	if len(due) > limit {
		due = due[:limit]
		last = due[limit-1]
	}
	return due, last, w.lookErr
}

func (w *world) ClaimLines(_ context.Context, _ string, keys, _ []string, limit int) (claims []txn.Claim, err error) {
	slices.Sort(keys)
	if len(keys) > 3 {
		w.note("claim %d lines, %d each", len(keys), limit)
	} else {
		w.note("claim %s, %d each", strings.Join(keys, " "), limit)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		claims = append(claims, w.lines[key]...)
		delete(w.lines, key)
	}
	return claims, w.claimErr
}

func (w *world) FlushMarks(context.Context) error {
	w.note("flush")
	return w.flushErr
}

func (w *world) Brokers(string) []string {
	if w.closed {
		return nil
	}
	return []string{"a"}
}

func (w *world) Deliver(_ context.Context, c txn.Claim, _ string) bool {
	w.note("end %s", c.Message.TxID)
	time.Sleep(w.slow)
	return !w.stuck[c.Message.TxID]
}

func (w *world) GiveBack(_ context.Context, claims []txn.Claim, _ error) {
	if len(claims) > 0 {
		w.note("give %s back", ids(claims))
	}
}

func (w *world) Send(_ context.Context, claims []txn.Claim) map[string]bool {
	delivered := make(map[string]bool)
	if len(claims) > 0 {
		w.note("send %s", ids(claims))
	}
	for _, c := range claims {
		delivered[c.Message.TxID] = !w.stuck[c.Message.TxID]
	}
	return delivered
}

func ids(claims []txn.Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, c.Message.TxID)
	}
	return strings.Join(all, " ")
}

func newLines(w *world) *Lines {
	return New(Ports{Claims: w, Marks: w, Gate: w, Claimed: w, Outbox: w}, slog.New(slog.DiscardHandler))
}

// line returns claims of one line for ids of the form "1" (with a half message), "2+" (without), or "3@2" (in queue 2).
func line(shardKey string, specs ...string) (claims []txn.Claim) {
	for _, spec := range specs {
		id, queue, _ := strings.Cut(spec, "@")
		id, outbox := strings.CutSuffix(id, "+")
		c := txn.Claim{
			Lease:   txn.Lease{ID: id, WriteBefore: time.Now().Add(txn.DefaultTiming().WriteWithin)},
			Message: txn.Message{TxID: id, Topic: "t", ShardKey: shardKey, Queue: txn.Queue{Broker: "a", ID: len(queue)}},
			Outbox:  outbox, Ordered: true,
		}
		claims = append(claims, c)
	}
	return claims
}

func TestDeliver(t *testing.T) {
	for name, tc := range map[string]struct {
		stuck string
		lines [][]txn.Claim
		again []string
		log   []string // of one line: in order; of several: sorted
	}{
		"half messages in their order": {"", [][]txn.Claim{line("k", "1", "2", "3")}, []string{"k"}, []string{"end 1", "end 2", "end 3"}},
		"what is stuck stops its line": {"2", [][]txn.Claim{line("k", "1", "2", "3", "4+")}, nil,
			[]string{"end 1", "end 2", "give 3 back", "give 4 back"}},
		"rows without half messages together": {"", [][]txn.Claim{line("k", "1+", "2+")}, []string{"k"}, []string{"send 1 2"}},
		"one of either sort waits for the other": {"", [][]txn.Claim{line("k", "1", "2+", "3")}, []string{"k"},
			[]string{"end 1", "send 2", "end 3"}},
		"so does one in another queue": {"", [][]txn.Claim{line("k", "1+", "2+@2", "3+")}, []string{"k"},
			[]string{"send 1", "send 2", "send 3"}},
		"and not when the one before is stuck": {"1", [][]txn.Claim{line("k", "1+", "2+@2", "3+")}, nil,
			[]string{"send 1", "give 2 3 back"}},
		"other lines go on": {"1", [][]txn.Claim{line("k", "1", "2"), line("m", "3", "4+"), line("n", "5+")}, []string{"n", "m"},
			[]string{"end 1", "end 3", "give 2 back", "send 4", "send 5"}},
		"one that is not sent holds up its line": {"2", [][]txn.Claim{line("k", "1+", "2+"), line("m", "3+")}, []string{"m"},
			[]string{"send 1 2 3"}},
		"also when the last was": {"1", [][]txn.Claim{line("k", "1+", "2+")}, nil, []string{"send 1 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{stuck: map[string]bool{tc.stuck: true}}
			again := newLines(w).deliver(t.Context(), slices.Concat(tc.lines...))
			if diff := cmp.Diff(tc.again, again); diff != "" {
				t.Errorf("lines that may have more (-want +got):\n%s", diff)
			}
			if len(tc.lines) > 1 {
				slices.Sort(w.log)
			}
			if diff := cmp.Diff(tc.log, w.log); diff != "" {
				t.Errorf("what it did (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLateLine: what comes too late in its line is given back.
func TestLateLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{slow: txn.DefaultTiming().WriteWithin/2 + 1}
		if again := newLines(w).deliver(t.Context(), line("k", "1", "2", "3", "4")); len(again) > 0 {
			t.Errorf("got lines %v, want none", again)
		}
		if diff := cmp.Diff([]string{"end 1", "end 2", "give 3 4 back"}, w.log); diff != "" {
			t.Errorf("what it did (-want +got):\n%s", diff)
		}
	})
}

// run lets Lines work on the topic t after wake until nothing is left, and returns what they did.
func run(t *testing.T, w *world, wake func(l *Lines)) (log []string) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(w)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		wake(l)
		synctest.Wait()
		if !l.Idle() {
			t.Error("not idle when nothing is left")
		}
		if topic := l.topics["t"]; topic != nil && topic.more() {
			t.Errorf("there is more, and nobody goes on: %v", topic)
		}
		cancel()
		<-ended
		log = w.log
	})
	return log
}

func TestStep(t *testing.T) {
	away := errors.New("away")
	wakeK := func(l *Lines) { l.Wake("t", "k") }
	look := func(l *Lines) { l.Look("t") }
	three := func() map[string][]txn.Claim {
		return map[string][]txn.Claim{"k": line("k", "1"), "m": line("m", "2"), "n": line("n", "3")}
	}
	for name, tc := range map[string]struct {
		world *world
		wake  func(l *Lines)
		log   []string
	}{
		"a known line, until it is empty": {&world{lines: map[string][]txn.Claim{"k": line("k", "1", "2"), "m": line("m", "3")}}, wakeK,
			[]string{"claim k, 500 each", "end 1", "end 2", "flush", "claim k, 500 each"}},
		"a look finds the others": {&world{lines: map[string][]txn.Claim{"k": line("k", "1")}}, look,
			[]string{`look after ""`, "claim k, 500 each", "end 1", "flush", "claim k, 500 each"}},
		"no broker can be sent to": {&world{lines: three(), closed: true}, wakeK, nil},
		"the database is away for claims": {&world{lines: three(), claimErr: away}, wakeK,
			[]string{"claim k, 500 each"}},
		"and for looks": {&world{lines: three(), lookErr: away}, look,
			[]string{`look after ""`}},
		"marks that are not written: those behind cannot be claimed": {&world{lines: map[string][]txn.Claim{"k": line("k", "1")}, flushErr: away}, wakeK,
			[]string{"claim k, 500 each", "end 1", "flush"}},
		"a stuck line is left to a later look": {&world{lines: map[string][]txn.Claim{"k": line("k", "1")}, stuck: map[string]bool{"1": true}}, wakeK,
			[]string{"claim k, 500 each", "end 1", "flush"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			for _, claims := range w.lines {
				for i := range claims {
					claims[i].Lease.WriteBefore = time.Time{}.AddDate(9000, 0, 0)
				}
			}
			if log := run(t, w, tc.wake); !slices.Equal(log, tc.log) {
				t.Errorf("what it did (-want +got):\n%s", cmp.Diff(tc.log, log))
			}
		})
	}
}

// TestMarksThatAreNotWritten: nothing more is claimed, because those behind would not be found to be next.
func TestMarksThatAreNotWritten(t *testing.T) {
	w := &world{lines: make(map[string][]txn.Claim), flushErr: errors.New("away")}
	log := run(t, w, func(l *Lines) {
		for i := range linesAtOnce + 1 {
			key := fmt.Sprint(i)
			w.lines[key] = line(key, key+"+")
			l.mu.Lock()
			l.topic("t").know(key)
			l.mu.Unlock()
		}
		l.Wake("t", "0")
	})
	if len(w.lines) != 1 || log[len(log)-1] != "flush" {
		t.Errorf("%d lines are left, and it did %.300q last; want one, and nothing after the flush", len(w.lines), log[len(log)-1])
	}
}

// TestManyLines: a look goes through all lines, some hundreds at a time, and no claim takes too many.
func TestManyLines(t *testing.T) {
	w := &world{lines: make(map[string][]txn.Claim)}
	for i := range linesLooked + linesAtOnce/2 {
		key := fmt.Sprintf("key-%04d", i)
		w.lines[key] = line(key, key+"+")
	}
	log := run(t, w, func(l *Lines) { l.Look("t") })
	looks, claims := 0, 0
	for _, entry := range log {
		switch {
		case strings.HasPrefix(entry, "look"):
			looks++
		case entry == fmt.Sprintf("claim %d lines, %d each", linesAtOnce, lineLimit):
			claims++
		}
	}
	if len(w.lines) > 0 || looks != 2 || claims < linesLooked/linesAtOnce {
		t.Errorf("%d lines are left after %d looks and %d full claims: %.300q", len(w.lines), looks, claims, log)
	}
}

// TestTooManyLinesToKnow: beyond linesKnown, a line is found by a look.
func TestTooManyLinesToKnow(t *testing.T) {
	top := &topic{keys: make(map[string]struct{})}
	for i := range linesKnown {
		top.know(fmt.Sprint(i))
	}
	if top.look {
		t.Error("a look is wanted although all lines are known")
	}
	if top.know("one more"); !top.look || len(top.keys) != linesKnown {
		t.Errorf("look %t with %d lines known, want a look and %d", top.look, len(top.keys), linesKnown)
	}
}
