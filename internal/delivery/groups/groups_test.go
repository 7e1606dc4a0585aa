package groups

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

// brokers are fake: which answer, and which store what they are sent.
type brokers struct{ silent, full map[string]bool }

func (b brokers) Brokers() []string            { return []string{"a", "b", "c", "d"} }
func (b brokers) Answering(broker string) bool { return !b.silent[broker] }
func (b brokers) Stores(broker string) bool    { return !b.full[broker] }

func TestBackOffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timing := txn.DefaultTiming()
		g := NewGate(brokers{}, brokers{}, timing)
		name := txn.Group{Broker: "a", Topic: "t"}
		for _, want := range []time.Duration{timing.FirstBackoff, 2 * timing.FirstBackoff, 4 * timing.FirstBackoff} {
			if got := g.BackOff(name, false); got != want {
				t.Errorf("got a pause of %s, want %s", got, want)
			}
			if got := g.BackOff(name, false); got != want {
				t.Errorf("a second queue that fails makes it %s, want %s", got, want)
			}
			if g.IsOpen(name) || !g.IsOpen(txn.Group{Broker: "a", Topic: "other"}) || !g.IsOpen(txn.Group{Broker: "b", Topic: "t"}) {
				t.Error("want this topic on this broker paused, and nothing else")
			}
			time.Sleep(want)
			if g.IsOpen(name) {
				t.Error("open before its pause is over")
			}
			time.Sleep(time.Nanosecond)
			if !g.IsOpen(name) {
				t.Error("paused for too long")
			}
		}
		for range 20 {
			time.Sleep(g.BackOff(name, false) + 1)
		}
		if got := g.BackOff(name, false); got != timing.TopicBackoff {
			t.Errorf("got a pause of %s after many failures, want %s", got, timing.TopicBackoff)
		}
		g.Reopen(name)
		if !g.IsOpen(name) {
			t.Error("paused after it was reopened")
		}
		for range 3 {
			if got := g.BackOff(name, true); got != busyPause {
				t.Errorf("got a pause of %s after busy, want %s each time", got, busyPause)
			}
			time.Sleep(busyPause + 1)
		}
		if got := g.BackOff(name, false); got != timing.FirstBackoff {
			t.Errorf("got a pause of %s for the first failure, want %s", got, timing.FirstBackoff)
		}
	})
}

func TestGateKeepsFromBrokers(t *testing.T) {
	b := brokers{silent: map[string]bool{"b": true}, full: map[string]bool{"c": true}}
	g := NewGate(b, b, txn.DefaultTiming())
	if diff := cmp.Diff([]string{"a", "d"}, g.Brokers("t")); diff != "" {
		t.Errorf("brokers that can be sent to (-want +got):\n%s", diff)
	}
	g.BackOff(txn.Group{Broker: "d", Topic: "t"}, false)
	if diff := cmp.Diff([]string{"a"}, g.Brokers("t")); diff != "" {
		t.Errorf("brokers while one is paused for the topic (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "d"}, g.Brokers("other")); diff != "" {
		t.Errorf("brokers for another topic (-want +got):\n%s", diff)
	}
}

// steps records the steps of a Runner's groups, and holds those that the test lets go.
type steps struct {
	mu      sync.Mutex
	log     []string
	running map[string]int
	held    map[string]chan bool // each value lets one step end; it says whether there is more
}

func (s *steps) step(_ context.Context, name string) bool {
	s.mu.Lock()
	s.log = append(s.log, name)
	s.running[name]++
	if s.running[name] > 1 {
		s.log = append(s.log, name+" twice at once")
	}
	hold := s.held[name]
	s.mu.Unlock()
	more := false
	if hold != nil {
		more = <-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[name]--
	return more
}

// want compares the steps that began since the last call.
func (s *steps) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(s.log)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	s.log = nil
}

// runner runs the test beside a Runner, which ends after it.
func runner(t *testing.T, open func(string) bool, held []string, test func(t *testing.T, r *Runner[string], s *steps, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		s := &steps{running: make(map[string]int), held: make(map[string]chan bool)}
		for _, name := range held {
			s.held[name] = make(chan bool)
		}
		r := NewRunner(open, s.step)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		test(t, r, s, cancel)
		cancel()
		<-ended
	})
}

func always(string) bool { return true }

func TestAGroupIsWorkedOnAlone(t *testing.T) {
	runner(t, always, []string{"a"}, func(t *testing.T, r *Runner[string], s *steps, _ func()) {
		r.Wake("a")
		s.want(t, "a")
		r.Wake("a") // while its step is under way
		r.Wake("b")
		s.want(t, "b") // which a does not hold up
		if r.Idle() {
			t.Error("idle while a is worked on")
		}
		s.held["a"] <- false
		s.want(t, "a") // it was woken meanwhile
		s.held["a"] <- true
		s.want(t, "a") // it said that there is more
		s.held["a"] <- false
		s.want(t)
		if !r.Idle() || len(r.groups) > 0 {
			t.Errorf("idle %t with %d groups, want neither work nor groups", r.Idle(), len(r.groups))
		}
	})
}

func TestAClosedGroupWaits(t *testing.T) {
	isOpen := false
	runner(t, func(name string) bool { return name != "a" || isOpen }, nil, func(t *testing.T, r *Runner[string], s *steps, _ func()) {
		r.Wake("a")
		s.want(t)
		r.Wake("b")
		s.want(t, "b")
		synctest.Wait()
		isOpen = true
		r.Wake("b")
		synctest.Wait()
		if got := len(s.log); got != 2 {
			t.Errorf("got steps %v, want one of each group", s.log)
		}
	})
}

func TestStopWaitsForSteps(t *testing.T) {
	runner(t, always, []string{"a"}, func(t *testing.T, r *Runner[string], s *steps, stop func()) {
		r.Wake("a")
		s.want(t, "a")
		r.Wake("a")
		stop()
		s.held["a"] <- true // there is more, which is left to others
		s.want(t)
	})
}
