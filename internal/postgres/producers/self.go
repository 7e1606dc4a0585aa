package producers

import (
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Self keeps track of the attempts of this process. It is safe for concurrent use. Before it is registered, no row is
// tracked.
type Self struct {
	wake chan struct{} // something was delivered, or is to be handed over

	mu       sync.Mutex
	last     int64               // the last created_at that was given, in microseconds
	attempts []*attempt          // those that are under way, or visible and not written yet; by created, which is unique
	tracked  map[string]*attempt // by id, those of them whose rows are tracked
	hand     []*attempt          // to be handed over
	// tracks says whether rows may be tracked: those that began before the ceiling, and not before the mark, the latest
	// watermark that was, or may be, written.
	tracks, stopped bool
	mark, ceiling   int64
}

type attempt struct {
	created int64
	id      string
	tracked bool
	handed  bool // it is to be handed over
	settled bool
	visible int64 // when its message became visible; 0: not, or not known here
}

// NewSelf returns a Self that knows no attempt.
func NewSelf() *Self {
	return &Self{wake: make(chan struct{}, 1), tracked: make(map[string]*attempt)}
}

// Begin notes an attempt, and returns its time, which is no other attempt's of this process. Each attempt has to end with
// Settle, or with HandOver.
func (s *Self) Begin() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(micros(time.Now()), s.last+1)
	s.attempts = append(s.attempts, &attempt{created: s.last})
	return fromMicros(s.last)
}

// find returns the attempt that began then, or nil. The caller holds the mutex.
func (s *Self) find(began time.Time) *attempt {
	created := micros(began)
	i, ok := slices.BinarySearchFunc(s.attempts, created, func(a *attempt, created int64) int {
		switch {
		case a.created < created:
			return -1
		case a.created > created:
			return 1
		default:
			return 0
		}
	})
	if !ok {
		return nil
	}
	return s.attempts[i]
}

// Track says whether the row of an attempt that began then can be tracked. When it is true, the row has to be written so, or
// not at all.
func (s *Self) Track(began time.Time, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.find(began)
	switch {
	case a == nil || a.settled || a.handed:
		return false
	case a.tracked:
		return true
	case !s.tracks || s.stopped || a.created < s.mark || a.created >= s.ceiling || s.tracked[id] != nil || len(s.attempts) > trackLimit:
		return false
	}
	a.tracked, a.id = true, id
	s.tracked[id] = a
	return true
}

// Settle says of an attempt that it left no row that is tracked, and never will.
func (s *Self) Settle(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.find(began); a != nil && !a.handed {
		s.settle(a)
	}
}

// settle ends an attempt. The caller holds the mutex.
func (s *Self) settle(a *attempt) {
	a.settled = true
	if a.tracked && a.visible == 0 {
		delete(s.tracked, a.id)
	}
}

// HandOver says of an attempt that its row may be there, and that its message is not known to be visible. It returns at once;
// a tracked row is given to who delivers pending rows as soon as the database takes it.
func (s *Self) HandOver(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.find(began)
	switch {
	case a == nil || a.settled || a.handed:
	case a.tracked:
		a.handed = true
		s.hand = append(s.hand, a)
		pause.Wake(s.wake)
	default:
		s.settle(a)
	}
}

// Delivered notes when the message of a tracked row became visible. It is false for rows that are not tracked by this
// process.
func (s *Self) Delivered(id string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.tracked[id]
	if a == nil {
		return false
	}
	if !a.settled {
		a.visible, a.settled = micros(at), true
		pause.Wake(s.wake)
	}
	return true
}

// Untrack says that a row says by itself what became of its message.
func (s *Self) Untrack(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.tracked[id]; a != nil && !a.settled {
		s.settle(a) // also when it is to be handed over: there is nothing left to do
	}
}

// VisibleAt returns when the message of a tracked row of this process became visible, while that is not written yet; else
// zero.
func (s *Self) VisibleAt(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.tracked[id]; a != nil && a.visible != 0 {
		return fromMicros(a.visible)
	}
	return time.Time{}
}

// oldest returns when the oldest attempt under way began, or the present.
func (s *Self) oldest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		if !a.settled {
			return a.created
		}
	}
	return max(micros(time.Now()), s.last+1)
}

// snapshot is what one flush writes.
type snapshot struct {
	visible, settled, ceiling int64 // see the table
	hand                      []*attempt
	times                     []byte // of what has become visible; empty: nothing
}

// watermark is the snapshot as it is written.
func (w snapshot) watermark(durable bool) Watermark {
	m := Watermark{
		VisibleBefore: fromMicros(w.visible), SettledBefore: fromMicros(w.settled), Ceiling: fromMicros(w.ceiling), Times: w.times, Durable: durable,
	}
	for _, a := range w.hand {
		m.HandOver = append(m.HandOver, a.id)
	}
	return m
}

// snapshot returns what is to be written now. From now on no attempt begins, and no row is tracked, before its watermark.
// Attempts that are handed over by this flush do not hold the watermark back. When tracking has stopped and no tracked row is
// under way, the ceiling is the watermark: there is nothing to look for when the process is gone.
func (s *Self) snapshot() snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := max(micros(time.Now()), s.last+1)
	s.last = now - 1
	w := snapshot{visible: now, settled: now, ceiling: now + ahead.Microseconds(), hand: s.hand[:min(len(s.hand), handLimit)]}
	handed := make(map[*attempt]bool, len(w.hand))
	for _, a := range w.hand {
		handed[a] = true
	}
	before, tracked := int64(0), false
	for _, a := range s.attempts {
		tracked = tracked || a.tracked && !a.settled
		open := !a.settled && !handed[a]
		if open {
			w.settled = min(w.settled, a.created)
			if a.tracked || !s.stopped && now-a.created < patience.Microseconds() {
				w.visible = min(w.visible, a.created)
			}
		}
		if a.visible != 0 && a.created < w.visible {
			w.times = appendTimes(w.times, before, a.created, a.visible)
			before = a.created
		}
	}
	if s.stopped && !tracked {
		w.ceiling = w.visible
	}
	s.mark = max(s.mark, w.visible)
	return w
}

// written notes that a snapshot is in the database, and whether all processes on it know tracked rows.
func (s *Self) written(w snapshot, tracks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracks, s.ceiling = tracks, w.ceiling
	for _, a := range w.hand {
		if !a.settled {
			s.settle(a)
		}
	}
	s.hand = slices.Clone(s.hand[len(w.hand):])
	rest := s.attempts[:0]
	for _, a := range s.attempts {
		switch {
		case !a.settled, a.visible != 0 && a.created >= w.visible:
			rest = append(rest, a)
		case a.visible != 0:
			delete(s.tracked, a.id)
		}
	}
	clear(s.attempts[len(rest):])
	s.attempts = rest
}

// stop ends the tracking of further rows, because the process ends.
func (s *Self) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// hasMore says whether rows are still to be handed over.
func (s *Self) hasMore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.hand) > 0
}
