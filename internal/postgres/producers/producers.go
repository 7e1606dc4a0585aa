package producers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// Producers knows the processes that work on this database, and writes the watermark of this one. It is safe for concurrent
// use.
type Producers struct {
	*Self
	db     *postgres.DB
	log    *slog.Logger
	prefix atomic.Pointer[string] // of this process, once Register was called

	flushing sync.Mutex // one flush at a time

	mu    sync.Mutex
	looks map[string]look // processes that are gone, by prefix
}

// look says when the rest of a process that is gone is looked for again.
type look struct {
	next time.Time
	wait time.Duration
}

// New returns the processes that work on the database.
func New(db *postgres.DB, self *Self, log *slog.Logger) *Producers {
	return &Producers{Self: self, db: db, log: log, looks: make(map[string]look)}
}

// Register notes that this process, whose message ids begin with the prefix, works on this database; see OwnHalf. From now on
// its rows can be tracked.
func (s *Producers) Register(ctx context.Context, prefix string) error {
	s.prefix.Store(&prefix)
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	// Rows that rely on the entry come after it in the log, so it has to be as durable as they are.
	if err := s.flush(ctx, s.snapshot, `SET LOCAL synchronous_commit TO DEFAULT`); err != nil {
		return fmt.Errorf("registering this process: %w", err)
	}
	if _, err := s.db.Pool().Exec(ctx, forget, prefix, known); err != nil {
		return fmt.Errorf("forgetting processes that are gone: %w", err)
	}
	return nil
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
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	return s.flush(ctx, s.snapshot, `SET LOCAL synchronous_commit TO off`) // what is lost in a crash is written again
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
		if err := s.flush(ctx, s.lastSnapshot, `SET LOCAL synchronous_commit TO off`); err != nil {
			s.log.WarnContext(ctx, "writing the last watermark; others look for what it would have named", "error", err)
			return
		}
		if !more {
			return
		}
	}
}

func (s *Producers) flush(ctx context.Context, take func() snapshot, durability string) error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	w := take()
	prefix := *s.prefix.Load()
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	batch.Queue(durability)
	if len(w.hand) > 0 {
		ids := make([]string, len(w.hand))
		for i, a := range w.hand {
			ids[i] = a.id
		}
		batch.Queue(handOver, ids, s.db.Timing().Lease())
	}
	tracks := false
	batch.Queue(flush, prefix, fromMicros(w.visible), fromMicros(w.settled), fromMicros(w.ceiling)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&tracks)
	})
	if len(w.times) > 0 {
		batch.Queue(logVisible, prefix, fromMicros(w.visible), w.times)
	}
	committed := false
	batch.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		committed = tag.String() == "COMMIT"
		return nil
	})
	err := s.db.Write(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, batch).Close() })
	if err != nil {
		return fmt.Errorf("writing a watermark: %w", err)
	}
	if committed {
		s.written(w, tracks)
	}
	return nil
}

// OwnHalf says whether a half message is of a process that works on this database. Processes of old versions did not
// register; their half messages are known by the rows that name them.
func (s *Producers) OwnHalf(ctx context.Context, id, uniqKey string) (bool, error) {
	if s.isSelf(uniqKey) {
		return true, nil
	}
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	var own bool
	if err := s.db.Pool().QueryRow(ctx, ownHalf, txn.ProducerOf(uniqKey), id, uniqKey).Scan(&own); err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return own, nil
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
	var is bool
	err := s.db.Pool().QueryRow(ctx, underWay, txn.ProducerOf(uniqKey), storedAt, s.db.Timing().Lease()).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return is, nil
}

// Adopt hands over what processes left behind that are gone: their tracked rows that are not known to be visible become
// pending. It returns how many.
func (s *Producers) Adopt(ctx context.Context) (adopted int64, err error) {
	lease := s.db.Timing().Lease()
	rows, err := s.db.Pool().Query(ctx, silent, lease)
	if err != nil {
		return 0, fmt.Errorf("looking for processes that are gone: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("looking for processes that are gone: %w", err)
	}
	for _, prefix := range s.due(gone) {
		tag, err := s.db.Exec(ctx, adopt, prefix, lease)
		if err != nil {
			return adopted, fmt.Errorf("adopting the rows of a process that is gone: %w", err)
		}
		adopted += tag.RowsAffected()
		s.looked(prefix, tag.RowsAffected())
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
		if !ok || !time.Now().Before(l.next) {
			due = append(due, prefix)
		}
		looks[prefix] = l
	}
	s.looks = looks
	return due
}

// looked notes a look. While there is something, the next one comes at once.
func (s *Producers) looked(prefix string, found int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := look{}
	if found == 0 {
		l.wait = min(max(2*s.looks[prefix].wait, firstLook), lastLook)
		l.next = time.Now().Add(l.wait)
	}
	s.looks[prefix] = l
}
