package world

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// World is one schedule's chance and time. Each decision has a name (who, what, about what) and a number that counts the
// decisions of that name, and depends on these and the seed only: so the order in which goroutines of one moment run does not
// change it, and a seed repeats its schedule exactly. It is safe for concurrent use.
type World struct {
	seed   uint64
	start  time.Time
	over   chan struct{} // closed at the end: whoever is dead may return
	calm   atomic.Bool
	flight atomic.Int64
	traced bool

	mu    sync.Mutex
	rolls map[name]uint64
	trace []string
}

type name struct{ who, what, about string }

// New returns the world of a seed. With traced, Trace keeps what it is told.
func New(seed uint64, traced bool) *World {
	return &World{seed: seed, start: time.Now(), over: make(chan struct{}), traced: traced, rolls: make(map[name]uint64)}
}

// Roll returns the chance for the next decision of this name.
func (w *World) Roll(who, what, about string) *Roll {
	key := name{who, what, about}
	w.mu.Lock()
	n := w.rolls[key]
	w.rolls[key] = n + 1
	w.mu.Unlock()
	state := w.seed
	for _, s := range [...]string{who, what, about} {
		for i := range len(s) {
			state = (state ^ uint64(s[i])) * 0x100000001b3
		}
		state = mix(state + 0x9e3779b97f4a7c15)
	}
	return &Roll{state: mix(state + n*0xbf58476d1ce4e5b9)}
}

// Calm ends all faults: from now on whatever is sent arrives, soon.
func (w *World) Calm() { w.calm.Store(true) }

// IsCalm says that faults have ended.
func (w *World) IsCalm() bool { return w.calm.Load() }

// End lets go of what waits for the dead.
func (w *World) End() { close(w.over) }

// Ended says that End was called.
func (w *World) Ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// After lets do happen later, whatever becomes of who sent it: what has left a process arrives without it.
func (w *World) After(d time.Duration, do func()) {
	w.flight.Add(1)
	time.AfterFunc(d, func() {
		defer w.flight.Add(-1)
		do()
	})
}

// InFlight counts what After was told and has not ended.
func (w *World) InFlight() int64 { return w.flight.Load() }

// Tracing says that Trace keeps what it is told: callers spare themselves the arguments otherwise.
func (w *World) Tracing() bool { return w.traced }

// Trace notes something that happened.
func (w *World) Trace(who, format string, args ...any) {
	if !w.traced {
		return
	}
	line := fmt.Sprintf("%11.6fs  %-8s %s", time.Since(w.start).Seconds(), who, fmt.Sprintf(format, args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, line)
}

// Lines returns the trace.
func (w *World) Lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trace
}

// short is a time for which a cancelled context may be overlooked.
const short = 3 * time.Millisecond

// Sleep returns false when ctx is done before, or a moment later.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= short || ctx.Done() == nil {
		time.Sleep(d)
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Roll is the chance for one decision and what follows from it.
type Roll struct{ state uint64 }

func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *Roll) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// Chance is true in the given share of all cases.
func (r *Roll) Chance(share float64) bool { return float64(r.next()>>11)/(1<<53) < share }

// Below returns a number of 0 to n-1.
func (r *Roll) Below(n int) int { return int(r.next() % uint64(n)) }

// Within returns a duration below the limit, to the nanosecond: no two things happen at one moment by accident.
func (r *Roll) Within(limit time.Duration) time.Duration {
	return time.Duration(r.next() % uint64(max(limit, 1)))
}

// Between returns a duration between the two.
func (r *Roll) Between(least, most time.Duration) time.Duration { return least + r.Within(most-least) }
