package delivery

import (
	"cmp"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

// at is a time so many milliseconds after the beginning of the test's clock.
func at(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

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
			e.addPosition("broker-a", position{at(200_000), 0, 0}) // all is in the index
			if got := e.settled("broker-a", at(tc.before), at(tc.now)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if e.settled("broker-b", at(tc.before), at(tc.now)) {
				t.Error("another broker's answers count")
			}
		})
	}
}

// TestSettledWhenIndexed: what is executed counts when the index has come past where the log ended then.
func TestSettledWhenIndexed(t *testing.T) {
	executed := 1002 + int((txn.DefaultTiming().BrokerQueue + probeMargin).Milliseconds())
	for name, tc := range map[string]struct {
		positions [][3]int // asked, end, indexed
		blind     bool
		now       int // 0: long after
		want      bool
	}{
		"never asked":                            {nil, false, 0, false},
		"indexed, asked before it was executed":  {[][3]int{{executed - 1, 500, 500}}, false, 0, false},
		"indexed when asked after":               {[][3]int{{executed, 500, 500}}, false, 0, true},
		"behind":                                 {[][3]int{{executed, 500, 499}}, false, 0, false},
		"behind, and behind ever more":           {[][3]int{{executed, 500, 400}, {executed + 500, 900, 499}}, false, 0, false},
		"past it, and behind what came later":    {[][3]int{{executed, 500, 400}, {executed + 500, 900, 500}}, false, 0, true},
		"the log is shorter after a crash":       {[][3]int{{executed, 500, 400}, {executed + 500, 300, 300}}, false, 0, true},
		"the broker does not tell":               {nil, true, executed + int(blindLag.Milliseconds()) - 1, false},
		"the broker does not tell, time is over": {nil, true, executed + int(blindLag.Milliseconds()), true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(txn.DefaultTiming())
			e.add("broker-a", at(1001), at(1002))
			if tc.blind {
				e.doesNotTell("broker-a")
			}
			for _, p := range tc.positions {
				e.addPosition("broker-a", position{at(p[0]), int64(p[1]), int64(p[2])})
			}
			now := at(cmp.Or(tc.now, 1_000_000))
			if got := e.settled("broker-a", at(1000), now); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if !e.wants("broker-a", now) || e.wants("broker-a", now.Add(wantedFor)) || e.wants("broker-b", now) {
				t.Error("the broker is to be asked for a while")
			}
		})
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
	e.settled("broker-a", at(900), at(1001+settles)) // somebody asks
	ready(1001+settles, false)
	e.addPosition("broker-a", position{at(1001 + settles), 500, 400})
	ready(1001+settles, false)
	e.addPosition("broker-a", position{at(1100 + settles), 600, 500})
	ready(1100+settles, true)
	ready(1001+settles+int((4*probeEvery).Milliseconds()), false) // it does not keep up
	ready(1001+settles+int(wantedFor.Milliseconds()), true)       // nobody asks any more
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
	if diff := gocmp.Diff([]string{"old and fresh"}, got); diff != "" {
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
