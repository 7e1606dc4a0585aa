package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

// at is a time so many milliseconds after the beginning of the test's clock.
func at(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

func isSettled(e *evidence, broker string, before, now int) bool {
	wait, _ := e.settled(broker, "t", at(before), at(now))
	return wait == 0
}

func TestSettled(t *testing.T) {
	wait := int((txn.DefaultTiming().BrokerQueue + probeMargin).Milliseconds())
	for name, tc := range map[string]struct {
		probes [][2]int // sent, answered
		before int      // what is asked about had reached the broker before
		now    int
		want   bool
	}{
		"never asked":                                          {nil, 0, 100_000, false},
		"asked before it arrived":                              {[][2]int{{1000, 1001}}, 1000, 100_000, false},
		"asked after, answered too recently":                   {[][2]int{{1001, 1002}}, 1000, 1002 + wait - 1, false},
		"asked after, answered long ago":                       {[][2]int{{1001, 1002}}, 1000, 1002 + wait, true},
		"stopped broker: asked before it woke, answered after": {[][2]int{{1001, 31_000}}, 1000, 31_000 + wait - 1, false},
		"stopped broker: its time has passed":                  {[][2]int{{1001, 31_000}}, 1000, 31_000 + wait, true},
		"a later answer does not undo an earlier one":          {[][2]int{{1001, 1002}, {9000, 9001}}, 1000, 1002 + wait, true},
		"answered in the future":                               {[][2]int{{1001, 1002}}, 1000, 900, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(txn.DefaultTiming())
			for _, p := range tc.probes {
				e.add("broker-a", at(p[0]), at(p[1]))
			}
			e.foundMark("broker-a", mark{before: at(200_000)}) // all is in the index
			if got := isSettled(e, "broker-a", tc.before, tc.now); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if isSettled(e, "broker-b", tc.before, tc.now) {
				t.Error("another broker's answers count")
			}
		})
	}
}

// TestSettledWhenIndexed: what is executed counts when a mark that was put behind it is in the index.
func TestSettledWhenIndexed(t *testing.T) {
	executed := 1002 + int((txn.DefaultTiming().BrokerQueue + probeMargin).Milliseconds())
	const late = 1_000_000
	for name, tc := range map[string]struct {
		found int // sent later than this; 0: none
		blind bool
		now   int
		want  bool
	}{
		"no mark is found":                        {0, false, late, false},
		"a mark from before it was executed":      {executed - 1, false, late, false},
		"a mark from after":                       {executed, false, late, true},
		"none can be put there":                   {0, true, executed + int(blindLag.Milliseconds()) - 1, false},
		"none can be put there, time is over":     {0, true, executed + int(blindLag.Milliseconds()), true},
		"none could once, and then one was found": {executed - 1, true, late, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(txn.DefaultTiming())
			e.add("broker-a", at(1001), at(1002))
			if tc.blind && (!e.setSource("broker-a", byTime) || e.setSource("broker-a", byTime)) {
				t.Error("want it to be told once")
			}
			if tc.found > 0 {
				e.foundMark("broker-a", mark{before: at(tc.found)})
			}
			if got := isSettled(e, "broker-a", 1000, tc.now); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// TestIndexIsSilent: marks that are in their queue and never in the index let rows be settled all the same, by what stands in
// the queues, and that is told. It ends when the index tells.
func TestIndexIsSilent(t *testing.T) {
	e := newEvidence(txn.DefaultTiming())
	late := int(time.Hour.Milliseconds())
	e.add("broker-a", at(1001), at(1002))
	if isSettled(e, "broker-a", 1000, late) {
		t.Error("settled without any mark")
	}
	m := mark{before: at(late), half: txn.Half{UniqKey: "1"}}
	e.addMark("broker-a", m)
	e.queuedMark("broker-a", m, at(late))
	e.queuedMark("broker-a", m, at(late+2000)) // it counts from the first time on
	patience := int(indexPatience.Milliseconds())
	if e.indexIsSilent("broker-a", at(late+patience-1)) || isSettled(e, "broker-a", 1000, late+patience-1) {
		t.Error("the index may still follow")
	}
	if !e.indexIsSilent("broker-a", at(late+patience)) || !e.setSource("broker-a", byQueue) {
		t.Fatal("the index had its time, and is not taken to be silent")
	}
	if wait, indexed := e.settled("broker-a", "t", at(1000), at(late+patience)); wait > 0 || indexed {
		t.Errorf("got a wait of %s, indexed %t, want none by what is in the queues", wait, indexed)
	}
	if got := e.troubles(at(late + patience))["broker-a"]; !strings.Contains(got, "messageIndexEnable") {
		t.Errorf("got trouble %q", got)
	}
	e.foundMark("broker-a", m)
	if wait, indexed := e.settled("broker-a", "t", at(1000), at(late+patience)); wait > 0 || !indexed || len(e.troubles(at(late+patience))) > 0 {
		t.Errorf("got a wait of %s, indexed %t, troubles %v after the index has told", wait, indexed, e.troubles(at(late+patience)))
	}
}

// TestStuck: rows that have been told to wait for longer than it can take are trouble, and no more when one is not, or when
// nobody has asked for long.
func TestStuck(t *testing.T) {
	minute := int(stuckAfter.Milliseconds())
	ask := func(e *evidence, now int) bool {
		isSettled(e, "broker-a", now, now)
		return len(e.troubles(at(now))) > 0
	}
	e := newEvidence(txn.DefaultTiming())
	for now := minute; now <= 2*minute; now += minute / 2 {
		if ask(e, now) {
			t.Errorf("trouble at %d ms", now)
		}
	}
	if !ask(e, 2*minute+1) {
		t.Error("no trouble after a minute of waiting")
	}
	if ask(e, 4*minute) {
		t.Error("trouble where nobody has asked for long")
	}
	for now := 4 * minute; now <= 5*minute; now += minute / 2 {
		ask(e, now)
	}
	e.add("broker-a", at(5*minute-2), at(5*minute-1))
	e.foundMark("broker-a", mark{before: at(9 * minute)})
	if isSettled(e, "broker-a", 5*minute-3, 5*minute+minute/2); len(e.troubles(at(5*minute+minute/2))) > 0 {
		t.Error("trouble although a row was settled")
	}
}

// TestMarks: they are put to brokers about which somebody asks, one after the other, and one that is found tells of all
// before it.
func TestMarks(t *testing.T) {
	e := newEvidence(txn.DefaultTiming())
	now := time.Now()
	wants := func(after time.Duration, want bool) {
		t.Helper()
		topic, ok := e.wantsMark("broker-a", now.Add(after))
		if ok != want || ok && topic != "t" {
			t.Errorf("after %s: got %t in %q, want %t", after, ok, topic, want)
		}
	}
	wants(0, false)
	e.add("broker-a", now.Add(-10*time.Second), now.Add(-10*time.Second))
	e.settled("broker-a", "t", now.Add(-11*time.Second), now)
	wants(0, true)
	marks := []mark{{before: now}, {before: now.Add(markEvery)}, {before: now.Add(2 * markEvery)}}
	e.addMark("broker-a", marks[0])
	wants(markEvery-1, false)
	wants(markEvery, true)
	e.addMark("broker-a", marks[1])
	e.addMark("broker-a", marks[2])
	e.foundMark("broker-a", marks[1])
	if got := e.openMarks("broker-a"); len(got) != 1 || got[0] != marks[2] {
		t.Errorf("got open marks %v, want the last one", got)
	}
	e.foundMark("broker-a", marks[2])
	e.foundMark("broker-a", marks[0])
	if got := e.marks["broker-a"].found; got != marks[2].before {
		t.Errorf("all before %s is in the index, want %s", got, marks[2].before)
	}
	wants(wantedFor-1, true)
	wants(wantedFor, false)
	for i := range 2 * marksKept {
		e.addMark("broker-a", mark{before: now.Add(time.Duration(i))})
	}
	if got := e.openMarks("broker-a"); len(got) != marksKept || got[0].before != now {
		t.Errorf("%d marks are kept, want %d, the oldest among them", len(got), marksKept)
	}
}

// TestReady: once somebody has asked about a broker, its rows are claimed while what is known of it keeps up.
func TestReady(t *testing.T) {
	settles := int((txn.DefaultTiming().BrokerQueue + probeMargin).Milliseconds())
	e := newEvidence(txn.DefaultTiming())
	ready := func(now int, want bool) {
		t.Helper()
		if got := len(e.ready([]string{"broker-a"}, at(now))) == 1; got != want {
			t.Errorf("at %d ms: got %t, want %t", now, got, want)
		}
	}
	ready(1000, true)
	e.add("broker-a", at(1000), at(1001))
	e.settled("broker-a", "t", at(900), at(1001+settles)) // somebody asks
	ready(1001+settles, false)
	e.foundMark("broker-a", mark{before: at(1000 + settles)})
	ready(1001+settles, false)
	e.foundMark("broker-a", mark{before: at(1001 + settles)})
	ready(1100+settles, true)
	wait := func(before, now time.Time) time.Duration {
		got, _ := e.settled("broker-a", "t", before, now)
		return got
	}
	if got, want := wait(at(3000), at(1100+settles)), 2*time.Second+probeEvery; got != want {
		t.Errorf("a row waits for %s, want %s", got, want)
	}
	if got := wait(at(9000), at(1100+settles)); got != longestWait {
		t.Errorf("a row waits for %s, want %s", got, longestWait)
	}
	late := 1001 + int(readyLag.Milliseconds())
	if got := wait(at(late-1), at(late-1)); got != 2*probeEvery {
		t.Errorf("a row waits for %s when nobody has asked for long, want %s", got, 2*probeEvery)
	}
	ready(late-1, true)
	ready(late, false)                                // it does not keep up
	ready(late-1+int(wantedFor.Milliseconds()), true) // nobody asks any more
}

// TestLeaseOutlivesItsFrames: at the end of a lease, what its holder wrote last has reached the broker's host for so long
// that a live broker has executed or dropped it.
func TestLeaseOutlivesItsFrames(t *testing.T) {
	timing := txn.DefaultTiming()
	lastArrival := timing.WriteWithin + timing.ArriveWithin
	if got := timing.Lease() - timing.Quiet(); got < lastArrival {
		t.Errorf("a frame may arrive %s after the lease's start, and the next holder counts from %s on", lastArrival, got)
	}
	if timing.Quiet() < timing.BrokerQueue+probeMargin+probeEvery {
		t.Errorf("at the end of a lease no probe can have settled what it sent: a claim would be put back each time")
	}
}

func TestAlive(t *testing.T) {
	e := newEvidence(txn.DefaultTiming())
	e.add("fresh", at(9000), at(9001))
	e.add("old and fresh", at(1000), at(1001))
	e.add("old and fresh", at(9000), at(9001))
	e.add("silent", at(1000), at(1001))
	got := e.alive([]string{"fresh", "never", "old and fresh", "silent"}, at(9100))
	if diff := cmp.Diff([]string{"old and fresh"}, got); diff != "" {
		t.Errorf("brokers whose rows are claimed (-want +got):\n%s", diff)
	}
}

func TestOldProbesAreForgotten(t *testing.T) {
	e := newEvidence(txn.DefaultTiming())
	for i := range 10 * probesKept {
		e.add("broker-a", at(i), at(i))
	}
	if got := len(e.probes["broker-a"]); got != probesKept {
		t.Errorf("%d probes are kept, want %d", got, probesKept)
	}
}

func TestBackoff(t *testing.T) {
	for attempts, want := range map[int]time.Duration{
		0: firstBackoff, 1: firstBackoff, 2: 2 * firstBackoff, 4: 8 * firstBackoff, 8: maxBackoff, 1 << 30: maxBackoff,
	} {
		if got := backoff(attempts); got != want {
			t.Errorf("after %d attempts: got %s, want %s", attempts, got, want)
		}
	}
}
