package producers

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Self keeps track of the attempts of this process. It is safe for concurrent use. Before it is registered, no row is
// tracked.
type Self struct {
	first time.Time     // no attempt began before
	wake  chan struct{} // something was delivered, or is to be handed over

	mu       sync.Mutex
	last     int64               // the last created_at that was given, in microseconds
	attempts []*attempt          // those that are under way, or visible and not written yet; by created, which is unique
	tracked  map[string]*attempt // by id, those of them whose rows are tracked
	hand     []*attempt          // to be handed over
	// tracks says whether rows may be tracked: those that began before the ceiling, and not before the mark, the latest
	// watermark that was, or may be, written.
	tracks, stopped bool
	mark, ceiling   int64
	highest         int64 // the ceiling of the last snapshot: each has another
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
	return &Self{first: time.Now().Truncate(time.Microsecond), wake: make(chan struct{}, 1), tracked: make(map[string]*attempt)}
}

// Begin notes an attempt, and returns its time, which is no other attempt's of this process. Each attempt has to end with
// Settle, or with HandOver.
//
// When the clock was set back, times go on where they were. When it was set back by much, the attempt has the present time and is
// not noted, because what is known of a row's age must stay about right; so its row is not tracked.
func (s *Self) Begin() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := micros(time.Now())
	if now < s.last-setBack.Microseconds() {
		for s.find(fromMicros(now)) != nil {
			now++
		}
		return fromMicros(now)
	}
	s.last = max(now, s.last+1)
	s.attempts = append(s.attempts, &attempt{created: s.last})
	return fromMicros(s.last)
}

// find returns the attempt that began then, or nil. The caller holds the mutex.
func (s *Self) find(began time.Time) *attempt {
	if i, ok := s.index(micros(began)); ok {
		return s.attempts[i]
	}
	return nil
}

func (s *Self) index(created int64) (i int, ok bool) {
	return slices.BinarySearchFunc(s.attempts, created, func(a *attempt, created int64) int { return cmp.Compare(a.created, created) })
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

// Explicit says of an attempt whose row was to be tracked that no such row was written, and that the row will say by itself
// what becomes of its message.
func (s *Self) Explicit(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.find(began); a != nil && a.tracked && !a.settled && !a.handed {
		a.tracked = false
		delete(s.tracked, a.id)
	}
}

// Settle says of an attempt that it left no row that is tracked, and never will.
func (s *Self) Settle(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.find(began); a != nil && !a.handed {
		s.settle(a)
	}
}

// settle ends an attempt, and forgets it unless it is visible. The caller holds the mutex.
func (s *Self) settle(a *attempt) {
	a.settled = true
	if a.visible != 0 {
		return
	}
	if a.tracked {
		delete(s.tracked, a.id)
	}
	if i, ok := s.index(a.created); ok {
		s.attempts = slices.Delete(s.attempts, i, i+1)
	}
}

// HandOver says of an attempt that its row may be there, and that its message is not known to be visible. It returns at once;
// a tracked row is given to who delivers pending rows as soon as the database takes it.
func (s *Self) HandOver(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver(s.find(began))
}

// HandOverRow is HandOver for a tracked row; others are left alone. It is for rows, too, that say by themselves what became of
// their message: a database that loses its last commits may lose that, and what is handed over is written together with the
// watermark that relies on it.
func (s *Self) HandOverRow(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver(s.tracked[id])
}

// handOver hands an attempt over; nil is none. The caller holds the mutex.
func (s *Self) handOver(a *attempt) {
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

// Delivered notes when the message of a tracked row became visible. It is false when the row may say by itself that its
// message is pending: it is not tracked by this process, or handed over, or so old that others may have claimed it, because
// its first lease has ended.
func (s *Self) Delivered(id string, at time.Time, lease time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.tracked[id]
	if a == nil || a.handed {
		return false
	}
	if !a.settled {
		a.visible, a.settled = micros(at), true
		pause.Wake(s.wake)
	}
	return at.Before(fromMicros(a.created).Add(lease))
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
	now                       int64 // when it was taken
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
// under way, the watermark is the ceiling: there is nothing to look for when the process is gone.
func (s *Self) snapshot() snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := max(micros(time.Now()), s.last+1)
	s.last = now - 1
	s.highest = max(now+ahead.Microseconds(), s.highest+1)
	w := snapshot{now: now, visible: now, settled: now, ceiling: s.highest, hand: s.hand[:min(len(s.hand), handLimit)]}
	if s.stopped {
		w.visible = w.ceiling
	}
	handed := make(map[*attempt]bool, len(w.hand))
	for _, a := range w.hand {
		handed[a] = true
	}
	before := int64(0)
	for _, a := range s.attempts {
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
	s.attempts = slices.DeleteFunc(s.attempts, func(a *attempt) bool {
		done := a.visible != 0 && a.created < w.visible
		if done {
			delete(s.tracked, a.id)
		}
		return done
	})
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
