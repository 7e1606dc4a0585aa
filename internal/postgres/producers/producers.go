package producers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// Producers knows the processes that work on this database, and writes the watermark of this one. It is safe for concurrent
// use.
type Producers struct {
	*Self
	db     Database
	log    *slog.Logger
	prefix atomic.Pointer[string] // of this process, once Register was called

	flushing sync.Mutex  // one flush at a time
	wrote    []time.Time // the ceilings of the last flush that was written, and of those since then that may have been; empty: none

	mu    sync.Mutex
	looks map[string]look // processes that are gone, by prefix
}

// look says when the rest of a process that is gone is looked for again.
type look struct {
	first, next time.Time
}

// Database is what Producers does in the database. Each method is one transaction there, and bounds its time by itself.
type Database interface {
	// Write writes a watermark, and says whether all processes on the database know tracked rows. An error says that it is not
	// known whether it was written, or still will be; but ErrLost says that it was not, and that all else of it was.
	Write(ctx context.Context, prefix string, w Watermark) (tracks bool, err error)
	// Last returns the watermark VisibleBefore that the database has; zero: it has none.
	Last(ctx context.Context, prefix string) (time.Time, error)
	// HandOverSince makes tracked rows of a process pending that began from one time to another, up to some number, and returns
	// how many.
	HandOverSince(ctx context.Context, prefix string, from, to time.Time) (int64, error)
	// Forget deletes the processes that were not heard of for very long and have left nothing behind, but not this one.
	Forget(ctx context.Context, prefix string) error
	// OwnHalf says whether the process is known, or the id's row names the half message.
	OwnHalf(ctx context.Context, prefix, id, uniqKey string) (bool, error)
	// UnderWay says of a process that was heard of within a lease whether an attempt may be under way that it began by then.
	UnderWay(ctx context.Context, prefix string, by time.Time) (bool, error)
	// Silent returns the processes that may have left something and were not heard of for as long as a lease.
	Silent(ctx context.Context) (prefixes []string, err error)
	// Adopt makes the tracked rows of a process pending that are not before its watermark and older than a lease, up to some
	// number, and returns how many.
	Adopt(ctx context.Context, prefix string) (adopted int64, err error)
}

// Watermark is what one flush writes about a process, all of it or nothing. Its times are those of its attempts.
type Watermark struct {
	VisibleBefore time.Time // all its tracked rows before are visible, besides those of HandOver
	SettledBefore time.Time // none of its attempts that began before is under way
	Ceiling       time.Time // none of its tracked rows begins at or after it, before the next flush. Each flush has a later one
	HandOver      []string  // the ids of tracked rows that become pending
	Times         []byte    // when messages became visible; see VisibleAt. Empty: nothing is known
	// After has the ceilings of earlier flushes of which one has to be in the database; empty: none has to.
	After []time.Time
	// Durable: the answer comes when the log is on the disk. Without it, what was written before can be lost in a crash, but nothing that
	// it says will be untrue then.
	Durable bool
}

// ErrLost says that a database has lost the watermark that comes before, and with it everything that was written later: its
// server was restarted, or another one has taken over that did not have all of its log.
var ErrLost = errors.New("the last watermark is not in the database any more")

// New returns the processes that work on the database.
func New(db *postgres.DB, self *Self, log *slog.Logger) *Producers { return On(In(db), self, log) }

// In is the Database in PostgreSQL.
func In(db *postgres.DB) Database { return table{db} }

// On is New for whatever does what the database does.
func On(db Database, self *Self, log *slog.Logger) *Producers {
	return &Producers{Self: self, db: db, log: log, looks: make(map[string]look)}
}

// Register notes that this process, whose message ids begin with the prefix, works on this database; see OwnHalf. From now on
// its rows can be tracked.
func (s *Producers) Register(ctx context.Context, prefix string) error {
	s.prefix.Store(&prefix)
	// Rows that rely on the entry come after it in the log, so it has to be as durable as they are.
	if err := s.flush(ctx, true); err != nil {
		return fmt.Errorf("registering this process: %w", err)
	}
	return s.db.Forget(ctx, prefix)
}

// KeepTrack writes watermarks until ctx is done, and then what is left.
func (s *Producers) KeepTrack(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.finish(context.WithoutCancel(ctx))
			return
		case <-timer.C:
		case <-s.wake:
			pause.For(ctx, flushEvery)
		}
		next := idleEvery
		if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "writing the watermark; it is tried again, and rows are not tracked meanwhile", "error", err)
			next = flushRetry
		}
		timer.Reset(next)
	}
}

// Flush writes the watermark, and hands over what is to be.
func (s *Producers) Flush(ctx context.Context) error {
	if s.prefix.Load() == nil {
		return nil
	}
	return s.flush(ctx, false)
}

// finish writes the last watermark. When nothing is under way any more, nothing is looked for later.
func (s *Producers) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushFinish)
	defer cancel()
	if s.prefix.Load() == nil {
		return
	}
	s.stop()
	for {
		more := s.hasMore()
		if err := s.flush(ctx, false); err != nil {
			s.log.WarnContext(ctx, "writing the last watermark; others look for what it would have named", "error", err)
			return
		}
		if !more {
			return
		}
	}
}

func (s *Producers) flush(ctx context.Context, durable bool) error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	err := s.write(ctx, s.snapshot(), durable, s.wrote)
	if errors.Is(err, ErrLost) {
		return s.recover(ctx)
	}
	return err
}

// write writes a snapshot, after one of the flushes with these ceilings.
func (s *Producers) write(ctx context.Context, w snapshot, durable bool, after []time.Time) error {
	// What is handed over is not kept in memory then, so no crash may undo it.
	m := w.watermark(durable || len(w.hand) > 0)
	m.After = after
	if len(s.wrote) >= wroteLimit {
		s.wrote = s.wrote[:1]
	}
	s.wrote = append(slices.Clip(s.wrote), m.Ceiling) // it may be there, although no answer comes
	tracks, err := s.db.Write(ctx, *s.prefix.Load(), m)
	if err != nil {
		return err
	}
	s.wrote = []time.Time{m.Ceiling}
	s.written(w, tracks)
	return nil
}

// recover hands over all rows since the watermark that the database has, because it has lost later ones. What of these rows was
// handed over already, and what was visible, is found out again.
func (s *Producers) recover(ctx context.Context) error {
	prefix := *s.prefix.Load()
	since, err := s.db.Last(ctx, prefix)
	if err != nil {
		return err
	}
	if since.Before(s.first) {
		since = s.first
	}
	w := s.snapshot() // what is not committed yet is not before this watermark
	to, all := fromMicros(w.now), int64(0)
	for {
		n, err := s.db.HandOverSince(ctx, prefix, since, to)
		if err != nil {
			return err
		}
		if all += n; n == 0 {
			break
		}
	}
	s.log.WarnContext(ctx, "the database has lost commits: the messages since its last watermark are looked for", "messages", all, "since", since)
	return s.write(ctx, w, true, nil)
}

// OwnHalf says whether a half message is of a process that works on this database. Processes of old versions did not
// register; their half messages are known by the rows that name them.
func (s *Producers) OwnHalf(ctx context.Context, id, uniqKey string) (bool, error) {
	if s.isSelf(uniqKey) {
		return true, nil
	}
	return s.db.OwnHalf(ctx, txn.ProducerOf(uniqKey), id, uniqKey)
}

func (s *Producers) isSelf(uniqKey string) bool {
	prefix := s.prefix.Load()
	return prefix != nil && *prefix == txn.ProducerOf(uniqKey)
}

// UnderWay says whether the attempt may be under way that stored a half message at the given time, on its process's clock,
// so that it is too early to fence it. It is false for a process that has not been heard of for as long as a lease.
func (s *Producers) UnderWay(ctx context.Context, uniqKey string, storedAt time.Time) (bool, error) {
	storedAt = storedAt.Add(time.Millisecond) // the message has milliseconds
	if s.isSelf(uniqKey) {
		return s.oldest() <= micros(storedAt), nil
	}
	return s.db.UnderWay(ctx, txn.ProducerOf(uniqKey), storedAt)
}

// Adopt hands over what processes left behind that are gone: their tracked rows that are not known to be visible become
// pending. It returns how many.
func (s *Producers) Adopt(ctx context.Context) (adopted int64, err error) {
	gone, err := s.db.Silent(ctx)
	if err != nil {
		return 0, err
	}
	for _, prefix := range s.due(gone) {
		n, err := s.db.Adopt(ctx, prefix)
		if err != nil {
			return adopted, err
		}
		adopted += n
		s.looked(prefix, n)
	}
	return adopted, nil
}

// due returns those of the processes that are to be looked at now, and forgets those that are not gone any more.
func (s *Producers) due(gone []string) (due []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks := make(map[string]look, len(gone))
	for _, prefix := range gone {
		l, ok := s.looks[prefix]
		if !ok {
			l.first = time.Now()
		}
		if !time.Now().Before(l.next) {
			due = append(due, prefix)
		}
		looks[prefix] = l
	}
	s.looks = looks
	return due
}

// looked notes a look. While there is something, the next one comes at once; else later and later, because a local transaction
// that was under way may still commit, but hardly long after its process was gone.
func (s *Producers) looked(prefix string, found int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.looks[prefix]
	if found == 0 {
		l.next = time.Now().Add(min(max(time.Since(l.first)/lookPart, firstLook), lastLook))
	}
	s.looks[prefix] = l
}
