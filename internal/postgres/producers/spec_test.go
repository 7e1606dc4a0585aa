package producers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

const lease = 8 * time.Second

// flushed takes a snapshot and notes that it is written.
func flushed(s *Self) snapshot {
	w := s.snapshot()
	s.written(w, true)
	return w
}

// begin begins an attempt whose row is tracked.
func begin(t *testing.T, s *Self, id string) time.Time {
	t.Helper()
	began := s.Begin()
	if !s.Track(began, id) {
		t.Fatalf("the row of %s cannot be tracked", id)
	}
	return began
}

// Rows are tracked only between the mark and the ceiling, while all processes know tracked rows, one for an id.
func TestTrack(t *testing.T) {
	for name, row := range map[string]struct {
		before func(s *Self) time.Time
		want   bool
	}{
		"usual": {func(s *Self) time.Time { flushed(s); return s.Begin() }, true},
		"again, in another run": {func(s *Self) time.Time {
			flushed(s)
			began := s.Begin()
			s.Track(began, "tx-1")
			return began
		}, true},
		"before the first flush":                  {func(s *Self) time.Time { return s.Begin() }, false},
		"a flush that is not known to be written": {func(s *Self) time.Time { s.snapshot(); return s.Begin() }, false},
		"not all processes know it":               {func(s *Self) time.Time { s.written(s.snapshot(), false); return s.Begin() }, false},
		"at the ceiling":                          {func(s *Self) time.Time { flushed(s); time.Sleep(ahead); return s.Begin() }, false},
		"before the mark": {func(s *Self) time.Time {
			flushed(s)
			began := s.Begin()
			time.Sleep(patience)
			flushed(s)
			return began
		}, false},
		"before a mark that may be written": {func(s *Self) time.Time {
			flushed(s)
			began := s.Begin()
			time.Sleep(patience)
			s.snapshot()
			return began
		}, false},
		"young": {func(s *Self) time.Time {
			flushed(s)
			began := s.Begin()
			time.Sleep(patience - time.Millisecond)
			flushed(s)
			return began
		}, true},
		"stopped":           {func(s *Self) time.Time { flushed(s); s.stop(); return s.Begin() }, false},
		"settled":           {func(s *Self) time.Time { flushed(s); began := s.Begin(); s.Settle(began); return began }, false},
		"handed over":       {func(s *Self) time.Time { flushed(s); began := begin(t, s, "tx-1"); s.HandOver(began); return began }, false},
		"the id is tracked": {func(s *Self) time.Time { flushed(s); begin(t, s, "tx-1"); return s.Begin() }, false},
		"the id's message is visible": {func(s *Self) time.Time {
			flushed(s)
			begin(t, s, "tx-1")
			s.Delivered("tx-1", time.Now(), lease)
			return s.Begin()
		}, false},
		"too many": {func(s *Self) time.Time {
			flushed(s)
			for range trackLimit {
				s.Begin()
			}
			return s.Begin()
		}, false},
		"the clock was set back by much": {func(s *Self) time.Time {
			flushed(s)
			s.last += time.Minute.Microseconds()
			return s.Begin()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSelf()
				began := row.before(s)
				if got := s.Track(began, "tx-1"); got != row.want {
					t.Errorf("got %t, want %t", got, row.want)
				}
			})
		})
	}
}

// What an attempt that ended leaves of the watermark, of memory, and of what is written.
func TestEnds(t *testing.T) {
	at := time.Now
	for name, row := range map[string]struct {
		end     func(s *Self, began time.Time)
		holds   bool // the watermark does not pass it
		hand    bool // it is handed over
		logged  bool // its time is written
		settled bool // its half message may be fenced
	}{
		"under way":                          {end: func(*Self, time.Time) {}, holds: true},
		"delivered":                          {end: func(s *Self, _ time.Time) { s.Delivered("tx-1", at(), lease) }, logged: true, settled: true},
		"rolled back":                        {end: func(s *Self, began time.Time) { s.Settle(began) }, settled: true},
		"handed over":                        {end: func(s *Self, began time.Time) { s.HandOver(began) }, hand: true, settled: true},
		"explicit":                           {end: func(s *Self, _ time.Time) { s.HandOverRow("tx-1") }, hand: true, settled: true},
		"in the place of a fence, under way": {end: func(s *Self, began time.Time) { s.Explicit(began) }},
		"in the place of a fence": {end: func(s *Self, began time.Time) {
			s.Explicit(began)
			if s.Delivered("tx-1", at(), lease) {
				t.Error("a row is taken for tracked that is not")
			}
			s.Settle(began)
		}, settled: true},
		"delivered, then settled":     {end: func(s *Self, began time.Time) { s.Delivered("tx-1", at(), lease); s.Settle(began) }, logged: true, settled: true},
		"delivered, then handed over": {end: func(s *Self, began time.Time) { s.Delivered("tx-1", at(), lease); s.HandOver(began) }, logged: true, settled: true},
		"handed over, then settled":   {end: func(s *Self, began time.Time) { s.HandOver(began); s.Settle(began) }, hand: true, settled: true},
		"handed over twice":           {end: func(s *Self, began time.Time) { s.HandOver(began); s.HandOver(began) }, hand: true, settled: true},
		"handed over, then claimed and delivered here": {end: func(s *Self, began time.Time) {
			s.HandOver(began)
			if s.Delivered("tx-1", at(), lease) {
				t.Error("a row needs no mark that was handed over")
			}
		}, hand: true, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSelf()
				flushed(s)
				began := begin(t, s, "tx-1")
				time.Sleep(patience)
				row.end(s, began)
				w := flushed(s)
				if holds := w.visible <= micros(began); holds != row.holds {
					t.Errorf("the watermark is held back: got %t, want %t", holds, row.holds)
				}
				if settled := w.settled > micros(began); settled != row.settled {
					t.Errorf("settled: got %t, want %t", settled, row.settled)
				}
				if hand := len(w.hand) > 0; hand != row.hand {
					t.Errorf("handed over: got %t, want %t", hand, row.hand)
				}
				if logged := VisibleAt(w.times, began).Equal(time.Now()); logged != row.logged {
					t.Errorf("time written: got %t, want %t", logged, row.logged)
				}
				if left := len(s.attempts); row.settled != (left == 0) || row.settled && len(s.tracked)+len(s.hand) > 0 {
					t.Errorf("in memory: got %d attempts, %d tracked, %d to be handed over", left, len(s.tracked), len(s.hand))
				}
			})
		})
	}
}

// A message that became visible late may have been claimed meanwhile, so its row needs a mark beside the watermark.
func TestDeliveredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSelf()
		flushed(s)
		began := begin(t, s, "tx-1")
		if s.Delivered("tx-1", began.Add(lease), lease) {
			t.Error("got true a lease after the beginning")
		}
		if got := s.VisibleAt("tx-1"); !got.Equal(began.Add(lease)) {
			t.Errorf("visible at: got %s, want %s", got, began.Add(lease))
		}
		begin(t, s, "tx-2")
		if !s.Delivered("tx-2", began.Add(lease-time.Millisecond), lease) {
			t.Error("got false before the lease had ended")
		}
	})
}

// Attempts that ended leave nothing in memory while the database takes no watermark.
func TestMemoryWithoutFlushes(t *testing.T) {
	t.Parallel()
	s := NewSelf()
	flushed(s)
	for i := range 1000 {
		began := s.Begin()
		if i%2 == 0 && !s.Track(began, fmt.Sprint(i)) {
			t.Fatal("not tracked")
		}
		s.Settle(began)
	}
	if len(s.attempts)+len(s.tracked) > 0 {
		t.Errorf("got %d attempts and %d tracked, want none", len(s.attempts), len(s.tracked))
	}
}

// The last flush leaves nothing to look for, unless a tracked row is under way, or is visible and not before the watermark.
func TestLastFlush(t *testing.T) {
	for name, row := range map[string]struct {
		before func(s *Self)
		want   bool // there is something to look for
	}{
		"nothing":             {func(*Self) {}, false},
		"an explicit attempt": {func(s *Self) { s.Begin() }, false},
		"visible":             {func(s *Self) { begin(t, s, "tx-1"); s.Delivered("tx-1", time.Now(), lease) }, false},
		"handed over":         {func(s *Self) { s.HandOver(begin(t, s, "tx-1")) }, false},
		"under way":           {func(s *Self) { begin(t, s, "tx-1") }, true},
		"visible behind one that is under way": {func(s *Self) {
			begin(t, s, "tx-1")
			begin(t, s, "tx-2")
			s.Delivered("tx-2", time.Now(), lease)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSelf()
				before := flushed(s)
				row.before(s)
				s.stop()
				w := flushed(s)
				if got := w.visible < w.ceiling; got != row.want || w.ceiling < before.ceiling {
					t.Errorf("got visible before %d of the ceiling %d (before: %d), want something left: %t", w.visible, w.ceiling, before.ceiling, row.want)
				}
			})
		})
	}
}

// When the clock is set back by much, rows are about as old as they say, no two attempts have one time, and others go on.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSelf()
		flushed(s)
		early := s.Begin() // a time that comes again
		s.last += time.Hour.Microseconds()
		begun := s.Begin()
		if age := time.Since(begun); age < -time.Second || age > time.Second || begun.Equal(early) {
			t.Errorf("got %s, want about the present, and not %s", begun, early)
		}
		s.Settle(begun)
		s.HandOver(begun)
		if s.find(early) == nil {
			t.Error("the attempt with that time is gone")
		}
		time.Sleep(time.Hour)
		flushed(s)
		begin(t, s, "tx-1")
	})
}

// No two attempts have one time, also of many that begin in one microsecond.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSelf()
		last := s.Begin()
		for range 100 {
			next := s.Begin()
			if !next.After(last) {
				t.Fatalf("got %s after %s", next, last)
			}
			last = next
		}
		if w := s.snapshot(); s.Begin().UnixMicro() < w.ceiling-ahead.Microseconds() {
			t.Error("an attempt begins before the watermark")
		}
	})
}

// spec is what the database and the broker have, in the simplest form.
type spec struct {
	rows                      map[string]*specRow
	visible, settled, ceiling int64
	logs                      map[int64][]byte // by before
}

type specRow struct {
	created int64
	tracked bool
	visible int64
}

func (d *spec) apply(w snapshot) {
	d.visible, d.settled, d.ceiling = max(d.visible, w.visible), max(d.settled, w.settled), max(d.ceiling, w.ceiling)
	for _, a := range w.hand {
		if r := d.rows[a.id]; r != nil {
			r.tracked = false
		}
	}
	if _, ok := d.logs[w.visible]; !ok && len(w.times) > 0 {
		d.logs[w.visible] = w.times
	}
}

// loggedAt looks a time up as the query Times does.
func (d *spec) loggedAt(created int64) time.Time {
	first := int64(0)
	for before := range d.logs {
		if before > created && (first == 0 || before < first) {
			first = before
		}
	}
	return VisibleAt(d.logs[first], fromMicros(created))
}

// check holds the database to what everybody concludes from it, also when the process dies at this moment.
func (d *spec) check(open map[string]time.Time) error {
	for id, r := range d.rows {
		switch {
		case !r.tracked:
		case r.created < d.visible && r.visible == 0:
			return fmt.Errorf("%s counts as visible, and is not", id)
		case r.created < d.visible && d.loggedAt(r.created).UnixMicro() != r.visible:
			return fmt.Errorf("%s: the time is %s, want %d", id, d.loggedAt(r.created), r.visible)
		case r.created >= d.ceiling:
			return fmt.Errorf("%s would not be found: it is beyond the ceiling", id)
		}
	}
	for id, began := range open {
		if micros(began) < d.settled {
			return fmt.Errorf("%s may be fenced, and is under way", id)
		}
	}
	return nil
}

// Random attempts, ends and flushes, of which some are lost, are not answered, or come late, never let a row count as visible
// that is not.
func TestSelfRandomly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { randomly(t, seed) })
	}
}

func randomly(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	s, d := NewSelf(), &spec{rows: make(map[string]*specRow), logs: make(map[int64][]byte)}
	open := make(map[string]time.Time) // attempts that did not end
	var late []snapshot                // given up, and perhaps executed later
	pick := func(written bool) (string, bool) {
		for id := range open { // in a random order
			if (d.rows[id] != nil) == written {
				return id, true
			}
		}
		return "", false
	}
	flushing := false // one at a time
	var act func(n int)
	act = func(n int) {
		switch random.IntN(12) {
		case 0, 1:
			open[fmt.Sprint(n)] = s.Begin()
		case 2, 3, 4: // the row is committed
			if id, ok := pick(false); ok {
				d.rows[id] = &specRow{created: micros(open[id]), tracked: s.Track(open[id], id)}
			}
		case 5: // the local transaction fails
			if id, ok := pick(false); ok {
				if random.IntN(2) == 0 {
					s.Track(open[id], id)
				}
				s.Settle(open[id])
				delete(open, id)
			}
		case 6, 7: // the message is visible
			if id, ok := pick(true); ok {
				d.rows[id].visible = micros(time.Now())
				s.Delivered(id, time.Now(), lease)
				s.Settle(open[id])
				delete(open, id)
			}
		case 8:
			if id, ok := pick(true); ok {
				s.HandOver(open[id])
				delete(open, id)
			}
		case 9: // the lease is renewed
			if id, ok := pick(true); ok {
				d.rows[id].tracked = false
				s.HandOverRow(id)
				s.Settle(open[id])
				delete(open, id)
			}
		case 10:
			if flushing {
				return
			}
			w := s.snapshot()
			flushing = true
			for i := range random.IntN(5) {
				act(1000*(n+1) + i)
			}
			flushing = false
			switch random.IntN(4) {
			case 0: // lost, or late
				late = append(late, w)
			case 1: // not answered
				d.apply(w)
			default:
				d.apply(w)
				s.written(w, random.IntN(10) > 0)
			}
		case 11:
			if len(late) > 0 && random.IntN(2) == 0 {
				d.apply(late[0])
				late = late[1:]
			}
			time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		}
	}
	for n := range 400 {
		act(n)
		if err := d.check(open); err != nil {
			t.Fatalf("seed %d, step %d: %v", seed, n, err)
		}
	}
	for id, began := range open {
		if d.rows[id] != nil {
			s.HandOver(began)
		}
		s.Settle(began)
		delete(open, id)
	}
	s.stop()
	for more := true; more; {
		more = s.hasMore()
		w := s.snapshot()
		d.apply(w)
		s.written(w, true)
	}
	if err := d.check(open); err != nil {
		t.Fatalf("seed %d, at the end: %v", seed, err)
	}
	if d.visible < d.ceiling || len(s.attempts)+len(s.tracked)+len(s.hand) > 0 {
		t.Fatalf("seed %d: at the end %d is visible of %d; in memory are %d attempts, %d tracked, %d to be handed over",
			seed, d.visible, d.ceiling, len(s.attempts), len(s.tracked), len(s.hand))
	}
}

// What is appended is found, and nothing else; other bytes do no harm.
func FuzzVisibleAt(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, int64(1_700_000_000_000_000))
	f.Fuzz(func(t *testing.T, steps []byte, start int64) {
		VisibleAt(steps, fromMicros(start))
		start &= 1<<60 - 1
		var times []byte
		want := make(map[int64]int64)
		before, created := int64(0), start
		for i, step := range steps {
			created += int64(step) + 1
			want[created] = created + int64(step)*1000 - int64(i)*100 // also before it, when the clock was set back
			times = appendTimes(times, before, created, want[created])
			before = created
		}
		for created, visible := range want {
			if got := VisibleAt(times, fromMicros(created)); got.UnixMicro() != visible {
				t.Fatalf("got %s, want %s", got, fromMicros(visible))
			}
			if _, known := want[created+1]; !known && !VisibleAt(times, fromMicros(created+1)).IsZero() {
				t.Fatal("a time is found for a row that is not there")
			}
		}
	})
}
