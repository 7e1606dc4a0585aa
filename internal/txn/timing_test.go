package txn

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultTimingIsValid(t *testing.T) {
	kinds := []*Kind{{Name: "short", Timeout: time.Millisecond}, {Name: "long", Timeout: time.Minute, Options: Options{Ordered: true}}}
	if err := DefaultTiming().Validate(kinds); err != nil {
		t.Error(err)
	}
}

func TestTimingIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Timing, *Kind)
		says   string
	}{
		"nothing":                   {func(t *Timing, _ *Kind) { t.Slack = 0 }, "Slack is not positive"},
		"no tries":                  {func(t *Timing, _ *Kind) { t.HalfTries = 0 }, "HalfTries is not positive"},
		"lease shorter than a call": {func(t *Timing, _ *Kind) { t.CallWithin = t.Lease() }, "a delivery ends while its lease lasts"},
		"lease shorter than an end": {func(t *Timing, _ *Kind) { t.EndWithin = t.Lease() }, "reply while its lease lasts"},
		"margin without slack":      {func(t *Timing, _ *Kind) { t.ProbeMargin = t.Slack }, "settled when a lease ends"},
		"impatient of slaves":       {func(t *Timing, _ *Kind) { t.AnswerWithin = t.BrokerReplica }, "without its slave"},
		"blind to slow slaves":      {func(t *Timing, _ *Kind) { t.SlowAnswer = t.BrokerReplica }, "is noticed"},
		"default out of bounds":     {func(t *Timing, _ *Kind) { t.LocalDefault = t.LocalMost }, "a kind that sets no timeout"},
		"fence for longer than it":  {func(t *Timing, _ *Kind) { t.FenceWithin = t.SettleWithin }, "a fence gives up"},
		"pause of accepted lists":   {func(t *Timing, _ *Kind) { t.AcceptPause = t.AcceptedEvery }, "all replicas know"},
		"kind without a timeout":    {func(_ *Timing, k *Kind) { k.Timeout = 0 }, "kind orders: the timeout 0s"},
		"kind with a long timeout":  {func(t *Timing, k *Kind) { k.Timeout = t.LocalMost + 1 }, "kind orders"},
	} {
		t.Run(name, func(t *testing.T) {
			timing, kind := DefaultTiming(), &Kind{Name: "orders", Timeout: time.Second}
			tc.change(&timing, kind)
			err := timing.Validate([]*Kind{kind})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q in it", err, tc.says)
			}
		})
	}
}

// TestAnAnswerFindsItsConnection: whatever a request may take, its connection lasts longer, and so does that of a request
// with the same id that follows it.
func TestAnAnswerFindsItsConnection(t *testing.T) {
	timing := DefaultTiming()
	for _, kind := range []*Kind{
		{Timeout: time.Millisecond}, {Timeout: 5 * time.Second}, {Timeout: time.Minute, Options: Options{Ordered: true}}, {Timeout: time.Second, Options: Options{Via: ViaOutbox}},
	} {
		by := timing.AnswerBy([]*Kind{kind})
		if follower := timing.BodyWithin + timing.Budget(kind).Total() + timing.FollowSlack(); by <= follower {
			t.Errorf("timeout %s: the connection ends after %s, a follower may wait for %s", kind.Timeout, by, follower)
		}
		runs := time.Duration(timing.LocalRuns) * kind.Timeout
		if half := time.Duration(timing.HalfTries) * timing.AnswerWithin; kind.Via != ViaOutbox && by < timing.BodyWithin+runs+half {
			t.Errorf("timeout %s: the connection ends after %s, all runs and half messages take %s", kind.Timeout, by, runs+half)
		}
	}
}
