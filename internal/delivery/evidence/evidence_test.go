package evidence

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

var timing = txn.DefaultTiming()

// at is a time so many milliseconds after the beginning of synctest's clock.
func at(ms int) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// sleepUntil lets the clock show at(ms), unless it shows more.
func sleepUntil(ms int) { time.Sleep(time.Until(at(ms))) }

func isSettled(e *Evidence, broker string, before int) bool {
	wait, _ := e.Settled(broker, "t", at(before))
	return wait == 0
}

func TestSettled(t *testing.T) {
	wait := int(timing.Settled().Milliseconds())
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
		"an older one is answered later":                       {[][2]int{{1001, 1002}, {900, 1003}}, 1000, 1003 + wait, true},
		"answered in the future":                               {[][2]int{{1001, 1002}}, 1000, 900, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(timing)
				for _, p := range tc.probes {
					e.add("broker-a", at(p[0]), at(p[1]))
				}
				e.foundIndexProbe("broker-a", indexProbe{before: at(200_000)}) // all is in the index
				sleepUntil(tc.now)
				if got := isSettled(e, "broker-a", tc.before); got != tc.want {
					t.Errorf("got %t, want %t", got, tc.want)
				}
				if isSettled(e, "broker-b", tc.before) {
					t.Error("another broker's answers count")
				}
			})
		})
	}
}

// TestSettledWhenIndexed: what is executed counts when an index probe that was put behind it is in the index.
func TestSettledWhenIndexed(t *testing.T) {
	executed := 1002 + int(timing.Settled().Milliseconds())
	const late = 1_000_000
	for name, tc := range map[string]struct {
		found int // sent later than this; 0: none
		blind bool
		now   int
		want  bool
	}{
		"no index probe is found":                 {0, false, late, false},
		"one from before it was executed":         {executed - 1, false, late, false},
		"one from after":                          {executed, false, late, true},
		"none can be put there":                   {0, true, executed + int(timing.IndexBlind.Milliseconds()) - 1, false},
		"none can be put there, time is over":     {0, true, executed + int(timing.IndexBlind.Milliseconds()), true},
		"none could once, and then one was found": {executed - 1, true, late, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(timing)
				e.add("broker-a", at(1001), at(1002))
				if tc.blind && (!e.setSource("broker-a", byTime) || e.setSource("broker-a", byTime)) {
					t.Error("want it to be told once")
				}
				if tc.found > 0 {
					e.foundIndexProbe("broker-a", indexProbe{before: at(tc.found)})
				}
				sleepUntil(tc.now)
				if got := isSettled(e, "broker-a", 1000); got != tc.want {
					t.Errorf("got %t, want %t", got, tc.want)
				}
			})
		})
	}
}

// TestIndexIsSilent: index probes that are in their queue and never in the index let rows be settled all the same, by what is
// in the queues, and that degrades the service. It ends when the index tells.
func TestIndexIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timing)
		e.add("broker-a", at(1001), at(1002))
		late := int(time.Hour.Milliseconds())
		sleepUntil(late)
		if isSettled(e, "broker-a", 1000) {
			t.Error("settled without any index probe")
		}
		p := indexProbe{before: at(late), half: txn.Half{UniqKey: "1"}}
		e.addIndexProbe("broker-a", p)
		e.queuedIndexProbe("broker-a", p)
		sleepUntil(late + 2000)
		e.queuedIndexProbe("broker-a", p) // it counts from the first time on
		patience := int(timing.IndexPatience.Milliseconds())
		sleepUntil(late + patience - 1)
		if e.indexIsSilent("broker-a") || isSettled(e, "broker-a", 1000) {
			t.Error("the index may still follow")
		}
		sleepUntil(late + patience)
		if !e.indexIsSilent("broker-a") || !e.setSource("broker-a", byQueue) {
			t.Fatal("the index had its time, and is not taken to be silent")
		}
		if wait, indexed := e.Settled("broker-a", "t", at(1000)); wait > 0 || indexed {
			t.Errorf("got a wait of %s, indexed %t, want none by what is in the queues", wait, indexed)
		}
		if got := e.Degraded()["broker-a"]; !strings.Contains(got, "messageIndexEnable") {
			t.Errorf("got degraded reason %q", got)
		}
		e.foundIndexProbe("broker-a", p)
		if wait, indexed := e.Settled("broker-a", "t", at(1000)); wait > 0 || !indexed || len(e.Degraded()) > 0 {
			t.Errorf("got a wait of %s, indexed %t, degraded %v after the index has told", wait, indexed, e.Degraded())
		}
	})
}

// TestStuck: rows that have been told to wait for longer than it can take degrade the service, and no more when one is not
// told to, or when nobody has asked for long.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := int(timing.EvidenceStuck.Milliseconds())
		e := New(timing)
		ask := func(now int) bool {
			sleepUntil(now)
			isSettled(e, "broker-a", now)
			return len(e.Degraded()) > 0
		}
		for now := minute; now <= 2*minute; now += minute / 2 {
			if ask(now) {
				t.Errorf("degraded at %d ms", now)
			}
		}
		if !ask(2*minute + 1) {
			t.Error("not degraded after a minute of waiting")
		}
		if ask(4 * minute) {
			t.Error("degraded where nobody has asked for long")
		}
		for now := 4 * minute; now <= 5*minute; now += minute / 2 {
			ask(now)
		}
		e.add("broker-a", at(5*minute-2), at(5*minute-1))
		e.foundIndexProbe("broker-a", indexProbe{before: at(9 * minute)})
		sleepUntil(5*minute + minute/2)
		if isSettled(e, "broker-a", 5*minute-3); len(e.Degraded()) > 0 {
			t.Error("degraded although a row was settled")
		}
	})
}

// TestIndexProbes: they are sent to brokers about which somebody asks, one after the other, and one that is found tells of all
// before it.
func TestIndexProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timing)
		start := 60_000
		every := int(timing.IndexProbeEvery.Milliseconds())
		wants := func(after int, want bool) {
			t.Helper()
			sleepUntil(start + after)
			topic, ok := e.wantsIndexProbe("broker-a")
			if ok != want || ok && topic != "t" {
				t.Errorf("after %d ms: got %t in %q, want %t", after, ok, topic, want)
			}
		}
		wants(0, false)
		e.add("broker-a", at(start-10_000), at(start-10_000))
		e.Settled("broker-a", "t", at(start-11_000))
		wants(0, true)
		probes := []indexProbe{{before: at(start)}, {before: at(start + every)}, {before: at(start + 2*every)}}
		e.addIndexProbe("broker-a", probes[0])
		wants(every-1, false)
		wants(every, true)
		e.addIndexProbe("broker-a", probes[1])
		e.addIndexProbe("broker-a", probes[2])
		e.foundIndexProbe("broker-a", probes[1])
		if got := e.openIndexProbes("broker-a"); len(got) != 1 || got[0] != probes[2] {
			t.Errorf("got open index probes %v, want the last one", got)
		}
		e.foundIndexProbe("broker-a", probes[2])
		e.foundIndexProbe("broker-a", probes[0])
		if got := e.of("broker-a").index.found; got != probes[2].before {
			t.Errorf("all before %s is in the index, want %s", got, probes[2].before)
		}
		for i := range 2 * indexProbesKept {
			e.addIndexProbe("broker-a", indexProbe{before: at(start + every + i)})
		}
		if got := e.openIndexProbes("broker-a"); len(got) != indexProbesKept || got[0].before != at(start+every) {
			t.Errorf("%d index probes are kept, want %d, the oldest among them", len(got), indexProbesKept)
		}
		e.foundIndexProbe("broker-a", indexProbe{before: at(start + 10*every)})
		wants(int(timing.IndexWanted.Milliseconds())-1, true)
		wants(int(timing.IndexWanted.Milliseconds()), false)
	})
}

// TestKeepsUp: once somebody has asked about a broker, its rows are claimed while its evidence keeps up.
func TestKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settles := int(timing.Settled().Milliseconds())
		e := New(timing)
		keepsUp := func(now int, want bool) {
			t.Helper()
			sleepUntil(now)
			if got := e.KeepsUp("broker-a"); got != want {
				t.Errorf("at %d ms: got %t, want %t", now, got, want)
			}
		}
		keepsUp(1000, true)
		e.add("broker-a", at(1000), at(1001))
		sleepUntil(1001 + settles)
		e.Settled("broker-a", "t", at(900)) // somebody asks
		keepsUp(1001+settles, false)
		e.foundIndexProbe("broker-a", indexProbe{before: at(1000 + settles)})
		keepsUp(1001+settles, false)
		e.foundIndexProbe("broker-a", indexProbe{before: at(1001 + settles)})
		keepsUp(1100+settles, true)
		wait := func(before int) time.Duration {
			got, _ := e.Settled("broker-a", "t", at(before))
			return got
		}
		if got, want := wait(3000), 2*time.Second+timing.ProbeEvery; got != want {
			t.Errorf("a row waits for %s, want %s", got, want)
		}
		if got := wait(9000); got != timing.EvidenceWait {
			t.Errorf("a row waits for %s, want %s", got, timing.EvidenceWait)
		}
		late := 1001 + int(timing.EvidenceLag.Milliseconds())
		sleepUntil(late - 1)
		if got := wait(late - 1); got != 2*timing.ProbeEvery {
			t.Errorf("a row waits for %s when nobody has asked for long, want %s", got, 2*timing.ProbeEvery)
		}
		keepsUp(late-1, true)
		keepsUp(late, false)                                         // it does not keep up
		keepsUp(late-1+int(timing.IndexWanted.Milliseconds()), true) // nobody asks any more
	})
}

// TestLeaseOutlivesItsFrames: at the end of a lease, what its holder wrote last has reached the broker's host for so long
// that a live broker has executed or dropped it.
func TestLeaseOutlivesItsFrames(t *testing.T) {
	lastArrival := timing.WriteWithin + timing.ArriveWithin
	if got := timing.Lease() - timing.Quiet(); got < lastArrival {
		t.Errorf("a frame may arrive %s after the lease's start, and the next holder counts from %s on", lastArrival, got)
	}
	if timing.Quiet() < timing.Settled()+timing.ProbeEvery {
		t.Errorf("at the end of a lease no probe can have settled what it sent: a claim would be put back each time")
	}
}

// TestClaimable: rows are claimed of brokers that answer, and of which something can be settled.
func TestClaimable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timing)
		e.add("fresh", at(9000), at(9001))
		e.add("old and fresh", at(1000), at(1001))
		e.add("old and fresh", at(9000), at(9001))
		e.add("silent", at(1000), at(1001))
		sleepUntil(9100)
		got := e.Claimable([]string{"fresh", "never", "old and fresh", "silent"})
		if diff := cmp.Diff([]string{"old and fresh"}, got); diff != "" {
			t.Errorf("brokers whose rows are claimed (-want +got):\n%s", diff)
		}
	})
}

// TestAnswering: a broker has so long to answer its first probe, and each after an answer.
func TestAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timing)
		within := int((answeringFor * timing.ProbeEvery).Milliseconds())
		answers := func(now int, want bool) {
			t.Helper()
			sleepUntil(now)
			if got := e.Answering("broker-a"); got != want {
				t.Errorf("at %d ms: got %t, want %t", now, got, want)
			}
		}
		answers(10_000, true) // never asked
		e.asking("broker-a")
		sleepUntil(10_500)
		e.asking("broker-a") // it counts from the first time on
		answers(10_000+within-1, true)
		answers(10_000+within, false)
		e.add("broker-a", at(15_000), at(15_000))
		answers(15_000+within-1, true)
		answers(15_000+within, false)
	})
}

func TestOldProbesAreForgotten(t *testing.T) {
	e := New(timing)
	for i := range 10 * probesKept {
		e.add("broker-a", at(i), at(i))
	}
	if got := len(e.of("broker-a").probes); got != probesKept {
		t.Errorf("%d probes are kept, want %d", got, probesKept)
	}
}
