package database

import (
	"context"
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/txn"
)

// producer is a process that works on the database.
type producer struct {
	format                    int // 1: it does not know tracked rows
	seen                      time.Time
	visible, settled, ceiling time.Time // see producers.Watermark
}

// oldSeen is for how long a process that does not know tracked rows is minded after it was seen.
const oldSeen = 11 * time.Minute

// isVisible says of a tracked row that its message is visible; the caller holds the mutex.
func (d *Database) isVisible(r *Row) bool {
	p, ok := d.producers[txn.ProducerOf(r.MessageID)]
	return !ok || r.CreatedAt.Before(p.visible)
}

// read returns what readers see; the caller holds the mutex.
func (d *Database) read(r *Row) txn.Transaction {
	t := r.Transaction
	if r.Tracked && d.isVisible(r) {
		t.Delivery = txn.DeliveryDelivered
	}
	return t
}

// explicit lets a row say by itself that its message is pending.
func (r *Row) explicit() {
	if r.Tracked {
		r.Tracked, r.Attempts = false, 1
	}
}

// table is the table of processes as one of them reaches it; see producers.Database.
type table struct{ s *Store }

// Write implements producers.Database.
func (t table) Write(ctx context.Context, prefix string, w producers.Watermark) (tracks bool, err error) {
	type written struct{ tracks, lost bool }
	did, err := statement(ctx, t.s, "watermark", prefix, func() written {
		lost := t.s.d.write(prefix, w)
		if t.s.w.Tracing() {
			t.s.w.Trace("database", "watermark of %s: %s, ceiling %s, %v handed over, lost: %t", t.s.life.Name, stamp(w.VisibleBefore), stamp(w.Ceiling), w.HandOver, lost)
		}
		return written{t.s.d.allTrack(), lost}
	})
	if err == nil && did.lost {
		err = producers.ErrLost
	}
	return did.tracks, err
}

// write executes a flush; the caller holds the mutex.
func (d *Database) write(prefix string, w producers.Watermark) (lost bool) {
	before, known := d.producers[prefix]
	undo := []func(){func() {
		d.producers[prefix] = before
		if !known {
			delete(d.producers, prefix)
		}
	}}
	for _, id := range w.HandOver {
		if r := d.rows[id]; r != nil && r.Tracked {
			was := *r
			undo = append(undo, func() { *r = was })
			r.explicit()
		}
	}
	p := producer{format: 2, seen: d.now(), visible: w.VisibleBefore, settled: w.SettledBefore, ceiling: w.Ceiling}
	if len(w.After) > 0 {
		lost = !known || !slices.ContainsFunc(w.After, before.ceiling.Equal)
	} else {
		p.visible, p.settled, p.ceiling = later(p.visible, before.visible), later(p.settled, before.settled), later(p.ceiling, before.ceiling)
	}
	if !lost {
		d.producers[prefix] = p
	}
	if w.Durable {
		d.forced()
	} else {
		d.unflushed = append(d.unflushed, undo...)
	}
	for _, r := range d.trackedBy(prefix) {
		if !r.CreatedAt.Before(before.visible) && d.isVisible(r) {
			d.watch.Delivered(*r)
		}
	}
	return lost
}

// allTrack says whether all processes know tracked rows; the caller holds the mutex.
func (d *Database) allTrack() bool {
	for _, p := range d.producers {
		if p.format < 2 && p.seen.After(d.now().Add(-oldSeen)) {
			return false
		}
	}
	return true
}

// Last implements producers.Database.
func (t table) Last(ctx context.Context, prefix string) (time.Time, error) {
	return statement(ctx, t.s, "last", prefix, func() time.Time { return t.s.d.producers[prefix].visible })
}

// HandOverSince implements producers.Database.
func (t table) HandOverSince(ctx context.Context, prefix string, from, to time.Time) (int64, error) {
	return statement(ctx, t.s, "hand over", prefix, func() (n int64) {
		for _, r := range t.s.d.trackedBy(prefix) {
			if !r.CreatedAt.Before(from) && r.CreatedAt.Before(to) {
				r.explicit()
				n++
			}
		}
		t.s.d.forced()
		return n
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tracks says whether the row of an attempt can be tracked.
func (s *Store) tracks(a *txn.Attempt) bool {
	if a.Kind.Ordered || outbox(a) && !a.Relay {
		return false
	}
	if s.Track(a.CreatedAt, a.Request.ID) {
		return true
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	p := s.d.producers[txn.ProducerOf(a.Half.UniqKey)]
	return s.d.broken.Ceiling && !a.CreatedAt.Before(p.ceiling) || s.d.broken.Mark && a.CreatedAt.Before(p.visible)
}

func stamp(t time.Time) string { return t.Format("05.000000") }

// trackedBy returns the tracked rows of a process; the caller holds the mutex.
func (d *Database) trackedBy(prefix string) []*Row {
	return d.where(func(r *Row) bool { return r.Tracked && txn.ProducerOf(r.MessageID) == prefix })
}

// Forget implements producers.Database. No schedule takes long enough.
func (table) Forget(context.Context, string) error { return nil }

// OwnHalf implements producers.Database.
func (t table) OwnHalf(ctx context.Context, prefix, id, uniqKey string) (bool, error) {
	return statement(ctx, t.s, "own", uniqKey, func() bool {
		_, known := t.s.d.producers[prefix]
		r := t.s.d.rows[id]
		return known || r != nil && (r.MessageID == uniqKey || slices.Contains(r.Fenced, uniqKey))
	})
}

// UnderWay implements producers.Database.
func (t table) UnderWay(ctx context.Context, prefix string, by time.Time) (bool, error) {
	return statement(ctx, t.s, "under way", prefix, func() bool {
		p, ok := t.s.d.producers[prefix]
		return ok && p.format == 2 && !p.settled.After(by) && p.seen.After(t.s.d.aLeaseAgo())
	})
}

// aLeaseAgo is on the database's clock.
func (d *Database) aLeaseAgo() time.Time { return d.now().Add(-d.config.Timing.Lease()) }

// Silent implements producers.Database.
func (t table) Silent(ctx context.Context) ([]string, error) {
	return statement(ctx, t.s, "silent", "", func() (gone []string) {
		for _, prefix := range sortedKeys(t.s.d.producers) {
			p := t.s.d.producers[prefix]
			if p.visible.Before(p.ceiling) && (t.s.d.broken.Adopt || p.seen.Before(t.s.d.aLeaseAgo())) {
				gone = append(gone, prefix)
			}
		}
		return gone
	})
}

// Adopt implements producers.Database.
func (t table) Adopt(ctx context.Context, prefix string) (int64, error) {
	d := t.s.d
	return statement(ctx, t.s, "adopt", prefix, func() (n int64) {
		p := d.producers[prefix]
		for _, r := range d.trackedBy(prefix) {
			if r.CreatedAt.Before(p.visible) || !r.CreatedAt.Before(p.ceiling) || !d.broken.Adopt && !r.Lease.Before(d.now()) {
				continue
			}
			r.explicit()
			if d.broken.Adopt {
				r.Lease = d.now()
			}
			d.forced()
			n++
			t.s.w.Trace(t.s.life.Name, "adopts %s", r.ID)
		}
		return n
	})
}
