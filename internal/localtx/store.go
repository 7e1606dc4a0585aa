package localtx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/txn"
)

// Store keeps transactions in PostgreSQL. It is safe for concurrent use. No call takes longer than a few seconds, but
// for Run, which the kind's timeout bounds.
type Store struct {
	pool     *pgxpool.Pool
	programs map[string]Program // by kind
	timing   txn.Timing
	log      *slog.Logger
	marker   *marker
	leavings leavings
	stored   stored
	confirms *confirmer
	closing  context.Context
	close    context.CancelFunc
	left     sync.WaitGroup         // COMMITs that are waited for although their requests were answered
	slots    chan struct{}          // one for each local transaction that runs
	producer atomic.Pointer[string] // the prefix of this process's message ids, once it is registered
}

// New returns a Store on a pool of NewPool. RunMarker has to be running for MarkDelivered to reach the table.
func New(pool *pgxpool.Pool, programs map[string]Program, timing txn.Timing, log *slog.Logger) *Store {
	closing, cancel := context.WithCancel(context.Background())
	return &Store{
		pool: pool, programs: programs, timing: timing, log: log, marker: newMarker(pool, log),
		leavings: leavings{known: make(map[string]residue)},
		stored:   stored{leaves: residueAny},
		confirms: &confirmer{pool: pool, log: log, ctx: closing},
		slots:    make(chan struct{}, localLimit(pool.Config().MaxConns)), closing: closing, close: cancel,
	}
}

// Close gives up what would wait for the database without end, COMMITs that no standby confirms, so that the pool can be
// closed. They are not cancelled: PostgreSQL goes on with them. Nothing else may be called meanwhile or afterwards.
func (s *Store) Close() {
	s.close()
	s.left.Wait()
	s.confirms.close()
}

// KeepBodies lets the bodies of the kinds' messages stay in their rows when they are visible. It is called before the Store is
// used.
func (s *Store) KeepBodies(kinds []string) { s.marker.keep = append(s.marker.keep, kinds...) }

// localLimit is how many of the pool's connections local transactions may use at once. The rest is left for what has to
// go on while they hang, on a lock for example: answers about known transactions, check-backs, deliveries.
func localLimit(conns int32) int32 { return max(1, conns-max(1, conns/8)) }

// RunMarker writes the delivered marks in batches until ctx is done, and then writes what is left.
func (s *Store) RunMarker(ctx context.Context) { s.marker.run(ctx) }

// bounded is for statements on the table itself: their callers' contexts may carry values only.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, statementTimeout)
}

// Find returns the row with the id, or txn.ErrNotFound. The state of one that no standby has confirmed although COMMIT waits for
// standbys is txn.StateUnknown, and what follows from the outcome is not set.
func (s *Store) Find(ctx context.Context, id string) (*txn.Transaction, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Marks are looked up on both sides of the read: one may be written, and forgotten, in between.
	before := s.marker.of(id)
	waits := false
	t, err := scanTransaction(s.pool.QueryRow(ctx, `SELECT `+selectColumns+`, `+waitsForStandbys+` FROM txsvc.transactions WHERE id = $1`, id), &waits)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, txn.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading transaction %s: %w", id, err)
	}
	before.overlay(t)
	s.marker.of(id).overlay(t)
	return s.confirmed(ctx, t, waits), nil
}

// MarkDelivered notes that the message is visible; see txn.Store.
func (s *Store) MarkDelivered(id string, at time.Time, ordered bool) {
	s.marker.add(id, stamp(at), ordered)
}

// MarkAll is MarkDelivered for many messages, and returns when the table says so.
func (s *Store) MarkAll(ctx context.Context, ids []string, at time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	marks := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		marks[id] = stamp(at)
	}
	return s.marker.write(ctx, slices.Sorted(maps.Keys(marks)), marks)
}

// FlushMarks returns when what was marked before is in the table.
func (s *Store) FlushMarks(ctx context.Context) error { return s.marker.flush(ctx) }

// Pending counts the committed rows whose message is not known to be visible. It reads all of them.
func (s *Store) Pending(ctx context.Context) (txn.Pending, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var p txn.Pending
	var oldest float64
	err := s.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE lease_until = 'infinity'),
			coalesce(extract(epoch FROM clock_timestamp() - min(decided_at)), 0)::float8
		FROM txsvc.transactions WHERE delivery = 'pending'`).Scan(&p.Count, &p.Parked, &oldest)
	if err != nil {
		return p, fmt.Errorf("counting pending deliveries: %w", err)
	}
	p.Oldest = time.Duration(oldest * float64(time.Second))
	return p, nil
}
