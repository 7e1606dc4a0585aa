package rows

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	markBatch = 1000    // marks in one statement
	markLimit = 100_000 // marks held while the database is away; the resolver finds the others again
)

// Marks writes delivered marks: the notes in rows that their messages are visible. It writes many in one statement. A mark
// that is lost costs a look at the broker's index, so a mark neither holds an answer up nor waits for the disk. Marks is
// safe for concurrent use.
type Marks struct {
	db      *postgres.DB
	tracked *producers.Self
	log     *slog.Logger
	wake    chan struct{}
	hurry   chan struct{} // as wake; others wait for the mark
	retains []string      // kinds whose bodies stay in their rows

	writing sync.Mutex // one flush at a time: the next takes the marks that have come meanwhile
	mu      sync.Mutex
	marks   map[string]time.Time
}

// NewMarks returns Marks that write nothing before Write runs. The bodies of messages of the kinds stay in their rows when
// the messages are visible; those of others are removed.
func NewMarks(db *postgres.DB, tracked *producers.Self, retains []string, log *slog.Logger) *Marks {
	return &Marks{
		db: db, tracked: tracked, log: log, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		retains: append([]string{}, retains...), marks: make(map[string]time.Time),
	}
}

// MarkDelivered notes that the message is visible; see txn.Store.
func (m *Marks) MarkDelivered(id string, at time.Time, ordered bool) {
	if m.tracked.Delivered(id, at, m.db.Timing().Lease()) {
		return
	}
	m.mu.Lock()
	if len(m.marks) < markLimit {
		m.marks[id] = Stamp(at)
	}
	m.mu.Unlock()
	if ordered {
		pause.Wake(m.hurry)
	}
	pause.Wake(m.wake)
}

// MarkAll is MarkDelivered for many messages, and returns when the table has the marks.
func (m *Marks) MarkAll(ctx context.Context, ids []string, at time.Time) error {
	ctx, cancel := m.db.Bounded(ctx)
	defer cancel()
	marks := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		marks[id] = Stamp(at)
	}
	return m.write(ctx, slices.Sorted(maps.Keys(marks)), marks)
}

// FlushMarks returns when the table has all marks that were made before.
func (m *Marks) FlushMarks(ctx context.Context) error {
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

// Write writes the marks in batches until ctx is done, and then writes what is left.
func (m *Marks) Write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), markFinish)
			defer cancel()
			if err := m.FlushMarks(final); err != nil {
				m.log.WarnContext(ctx, "marking messages delivered at the end; the resolver will find them visible", "error", err)
			}
			return
		case <-m.wake:
		}
		m.gather(ctx)
		if err := m.FlushMarks(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "marking messages delivered; it is tried again", "error", err)
			pause.For(ctx, markRetry)
			pause.Wake(m.wake)
		}
	}
}

// gather waits for more marks, unless one is in a hurry.
func (m *Marks) gather(ctx context.Context) {
	timer := time.NewTimer(markEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-m.hurry:
	}
}

func (m *Marks) write(ctx context.Context, ids []string, marks map[string]time.Time) error {
	at := make([]time.Time, len(ids))
	for i, id := range ids {
		at[i] = marks[id]
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	batch.Queue(markSettings)
	batch.Queue(markDelivered, ids, at, m.retains)
	batch.Queue(`COMMIT`)
	return m.db.Pool().SendBatch(ctx, batch).Close()
}

func (m *Marks) forget(ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		delete(m.marks, id)
	}
}

// mark is when a message was confirmed to be visible; the zero value is no mark.
type mark struct{ at time.Time }

// of returns the id's mark while it is not known to be in the row.
func (m *Marks) of(id string) mark {
	if at := m.tracked.VisibleAt(id); !at.IsZero() {
		return mark{at}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return mark{m.marks[id]}
}

func (k mark) is() bool { return !k.at.IsZero() }

// overlay makes t say what this process knows and the row may not say yet.
func (k mark) overlay(t *txn.Transaction) {
	if k.is() && t.Delivery == txn.DeliveryPending {
		t.Delivery, t.DeliveredAt = txn.DeliveryDelivered, k.at
	}
}
