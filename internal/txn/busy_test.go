package txn

import (
	"context"
	"testing"
	"time"
)

// busyBroker refuses the first half messages.
type busyBroker struct {
	Broker
	refuse int
	err    error
	sent   []string
}

func (*busyBroker) NewUniqKey() string { return "" }

func (b *busyBroker) SendHalf(_ context.Context, m Message) (Half, error) {
	b.sent = append(b.sent, m.UniqKey)
	if len(b.sent) <= b.refuse {
		return Half{}, b.err
	}
	return Half{}, nil
}

func TestBusyBrokerIsWaitedFor(t *testing.T) {
	busy, gone := &SendError{Outcome: Unsent, Reason: ReasonBusy}, &SendError{Outcome: Unsent, Reason: ReasonUnreachable}
	for name, tc := range map[string]struct {
		refuse   int
		err      error
		ok       bool
		attempts int
	}{
		"busy for a while":  {4, busy, true, 5},
		"busy for long":     {1 << 20, busy, false, 6},
		"gone":              {1 << 20, gone, false, 2},
		"gone for a moment": {1, gone, true, 2},
		"refused for good":  {1 << 20, &SendError{Outcome: RefusedForGood, Reason: ReasonTooLarge}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &busyBroker{refuse: tc.refuse, err: tc.err}
			s := &Service{config: Config{Timing: DefaultTiming()}, broker: b}
			err := s.sendHalf(t.Context(), &Attempt{Kind: &Kind{}}, time.Now().Add(time.Minute))
			if (err == nil) != tc.ok || len(b.sent) != tc.attempts {
				t.Errorf("got %d attempts, error %v; want %d, success %t", len(b.sent), err, tc.attempts, tc.ok)
			}
		})
	}
}
