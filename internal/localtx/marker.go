package localtx

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	markEvery  = 10 * time.Millisecond // how long a mark waits for company
	markBatch  = 1000                  // marks in one statement
	markKeep   = 100_000               // marks held while the database is away; the resolver finds the others again
	markRetry  = 500 * time.Millisecond
	markFinish = 5 * time.Second // for what is left at the end
)

// marker writes "delivered" for many rows in one statement. A mark that is lost costs a look at the broker's index, so
// it neither holds an answer up nor waits for the disk.
type marker struct {
	pool  *pgxpool.Pool
	log   *slog.Logger
	wake  chan struct{}
	hurry chan struct{} // as wake; others wait for the mark
	keep  []string      // kinds whose bodies stay in their rows

	writing sync.Mutex // one flush at a time: the next takes what has come meanwhile
	mu      sync.Mutex
	marks   map[string]time.Time
}

func newMarker(pool *pgxpool.Pool, log *slog.Logger) *marker {
	return &marker{
		pool: pool, log: log, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		keep: []string{}, marks: make(map[string]time.Time),
	}
}

func (m *marker) add(id string, at time.Time, hurry bool) {
	m.mu.Lock()
	if len(m.marks) < markKeep {
		m.marks[id] = at
	}
	m.mu.Unlock()
	if hurry {
		signal(m.hurry)
	}
	signal(m.wake)
}

// signal makes a channel of one place ready, if it is not.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// mark is when a message was confirmed to be visible; the zero value is no mark.
type mark struct{ at time.Time }

// of returns the id's mark that is not yet known to be in the row.
func (m *marker) of(id string) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mark{m.marks[id]}
}

// overlay makes t say what this process knows and the row may not yet.
func (k mark) overlay(t *txn.Transaction) {
	if !k.at.IsZero() && t.Delivery == txn.DeliveryPending {
		t.Delivery, t.DeliveredAt = txn.DeliveryDelivered, k.at
	}
}

func (m *marker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFinish)
			defer cancel()
			if err := m.flush(final); err != nil {
				m.log.WarnContext(ctx, "marking messages delivered at the end; the resolver will find them visible", "error", err)
			}
			return
		case <-m.wake:
		}
		m.gather(ctx)
		if err := m.flush(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "marking messages delivered; it is tried again", "error", err)
			pause.For(ctx, markRetry)
			signal(m.wake)
		}
	}
}

// gather waits for more marks, unless one is in a hurry.
func (m *marker) gather(ctx context.Context) {
	timer := time.NewTimer(markEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-m.hurry:
	}
}

func (m *marker) flush(ctx context.Context) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	marks := maps.Clone(m.marks)
	m.mu.Unlock()
	ids := slices.Sorted(maps.Keys(marks)) // sorted, so that replicas lock in one order
	for chunk := range slices.Chunk(ids, markBatch) {
		if err := m.write(ctx, chunk, marks); err != nil {
			return err
		}
		m.forget(chunk)
	}
	return nil
}

func (m *marker) forget(ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.marks, id)
	}
}

const (
	// A plan that was made while the table was small reads all of it, and would be kept until its statistics are renewed.
	markSettings = `SELECT set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true),
		set_config('enable_seqscan', 'off', true)`

	// isPending is t.delivery = 'pending' in a form that no index is for: rows are to be found by their ids. Those of a backlog
	// that has come since statistics were gathered are taken for few, and all of them would be read for each statement.
	isPending = `t.delivery || '' = 'pending'`
)

func (m *marker) write(ctx context.Context, ids []string, marks map[string]time.Time) error {
	at := make([]time.Time, len(ids))
	for i, id := range ids {
		at[i] = marks[id]
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	batch.Queue(markSettings)
	batch.Queue(`UPDATE txsvc.transactions t
		SET delivery = 'delivered', delivered_at = m.at, body = CASE WHEN t.kind = ANY ($3) THEN t.body END, lease_until = NULL, last_error = NULL
		FROM unnest($1::text[], $2::timestamptz[]) AS m (id, at)
		WHERE t.id = m.id AND `+isPending, ids, at, m.keep)
	batch.Queue(`COMMIT`)
	return m.pool.SendBatch(ctx, batch).Close()
}
