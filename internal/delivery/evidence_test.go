package delivery

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			if got := e.settled("broker-a", at(tc.before), at(tc.now)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if e.settled("broker-b", at(tc.before), at(tc.now)) {
				t.Error("another broker's answers count")
			}
		})
	}
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
