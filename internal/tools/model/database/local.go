package database

import (
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// session is a local transaction on the server. It goes on whatever becomes of its client, until its connection is seen to be
// closed.
type session struct {
	d       *Database
	e       *era
	a       *txn.Attempt
	lineKey string
	row     Row
	locked  bool // the id's key
	inLine  bool
}

// last is how a local transaction writes its row, at its end.
type last struct {
	reopens bool // in the place of an abandoned one
	tracked bool
}

func (d *Database) open(a *txn.Attempt) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return nil, errCrashed
	}
	return &session{d: d, e: d.era, a: a, lineKey: a.Kind.Topic + " " + a.Request.ShardKey}, nil
}

// begin takes the line's lock.
func (s *session) begin() error {
	if !s.a.Kind.Ordered || s.d.broken.LineLock {
		return nil
	}
	err := s.d.take(s.e, s.e.lines, s.lineKey, s.a.Kind.Timeout)
	s.inLine = err == nil
	return err
}

// write writes the row, last of all: it waits for others with the same key.
func (s *session) write(l last) error {
	if err := s.d.take(s.e, s.e.keys, s.a.Request.ID, s.a.Kind.Timeout); err != nil {
		return err
	}
	s.locked = true
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	there := s.d.rows[s.a.Request.ID]
	switch {
	case !l.reopens && there != nil:
		return errTaken
	case l.reopens && (there == nil || !there.Abandoned || slices.Contains(there.Fenced, s.a.Half.UniqKey) && !s.d.broken.Fence):
		return errFenced
	}
	s.row = rowOf(s.a, txn.StateCommitted)
	s.row.Tracked = l.tracked
	s.row.Lease = s.d.now()
	if (!outbox(s.a) || l.tracked) && !s.d.broken.FirstLease {
		s.row.Lease = s.d.now().Add(s.d.config.Timing.Lease())
	}
	if l.reopens {
		s.row.Fenced = there.Fenced
	}
	if s.a.Kind.Ordered {
		s.d.place++
		s.row.Line = s.d.place
	}
	return nil
}

// sync is the time that COMMIT takes.
func (s *session) sync(w work) error {
	timer := time.NewTimer(w.commits)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.e.over:
		return errCrashed
	}
}

// commit makes the row visible to others.
func (s *session) commit() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	select {
	case <-s.e.over:
		return errCrashed
	default:
	}
	row := s.row
	s.d.rows[row.ID] = &row
	s.d.forced()
	s.d.watch.Committed(row)
	if row.Tracked && s.d.isVisible(&row) {
		s.d.watch.Delivered(row)
	}
	s.end()
	return nil
}

// abort rolls back.
func (s *session) abort() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.end()
}

func (s *session) end() {
	if s.locked {
		release(s.e.keys, s.a.Request.ID)
	}
	if s.inLine {
		release(s.e.lines, s.lineKey)
	}
	s.locked, s.inLine = false, false
}

func rowOf(a *txn.Attempt, state txn.State) Row {
	now := time.Now().UTC().Truncate(time.Microsecond)
	r := Row{
		Transaction: txn.Transaction{
			ID: a.Request.ID, Kind: a.Kind.Name, State: state, Delivery: txn.DeliveryNone, ShardKey: a.Request.ShardKey,
			Topic: a.Kind.Topic, Tag: a.Request.Tag, Route: a.Route, MessageID: a.Half.UniqKey,
			CreatedAt: a.CreatedAt.UTC().Truncate(time.Microsecond), DecidedAt: now, Fingerprint: a.Fingerprint, Ordered: a.Kind.Ordered,
		},
		Message: a.Message, Half: a.Half, Outbox: outbox(a), Epoch: 1,
	}
	if state == txn.StateCommitted {
		r.Delivery = txn.DeliveryPending
		r.Result = a.Request.Payload
	}
	return r
}

func outbox(a *txn.Attempt) bool { return a.Via == txn.ViaOutbox }

// work is how a local transaction goes, by chance.
type work struct {
	arrives, takes, commits, back time.Duration
	refuses                       bool
}

// Refused is the payload of a request that the business refuses.
const Refused = `"refused"`

func (d *Database) workOf(a *txn.Attempt, roll *world.Roll) work {
	w := work{
		arrives: roll.Within(time.Millisecond), takes: roll.Within(d.config.Local), commits: roll.Within(2 * time.Millisecond), back: roll.Within(time.Millisecond),
		refuses: string(a.Request.Payload) == Refused,
	}
	if roll.Chance(d.config.Slow) && !d.w.IsCalm() {
		w.takes = roll.Within(a.Kind.Timeout * 5 / 4)
	}
	if roll.Chance(d.config.Slow/2) && !d.w.IsCalm() {
		w.commits = roll.Within(2 * fenceWait)
	}
	return w
}

// body is what the kind's statements do. Each is bounded by the timeout.
func (s *session) body(w work) error {
	takes := min(w.takes, s.a.Kind.Timeout)
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.e.over:
		return errCrashed
	}
	switch {
	case w.takes > s.a.Kind.Timeout:
		return errTimeout
	case w.refuses:
		return &txn.Rejection{Message: "refused"}
	}
	return nil
}
