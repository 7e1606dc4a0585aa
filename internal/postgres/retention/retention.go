// Package retention deletes old transactions.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
)

const (
	// stepBlocks is how much of the table one step looks at, in blocks (of 8 KiB, as PostgreSQL is built): some 5,000
	// transactions.
	stepBlocks = 256
	// stepPause is the least time between two steps of a process: it reads at most 20 MiB in a second.
	stepPause = 100 * time.Millisecond
	// A sweep begins again when a part of the age has passed since the last one ended, within these bounds.
	minRest, maxRest = time.Minute, time.Hour
	restPart         = 100
	// fenceAge is the least age of an abandoned row that is deleted. It fences half messages that were answered "rollback", and
	// a process that was stopped may still try to commit one of them.
	fenceAge = 24 * time.Hour
	// retryAfter is the pause after an error, and between looks at whether another sweep is due.
	retryAfter = 5 * time.Second
	// warnEvery bounds the warnings while the database does not answer.
	warnEvery = time.Minute
)

const (
	// settings: a step that is forgotten in a crash is done again, so its COMMIT need not wait for the disk. Its plan is made
	// anew each time, and never reads the whole table: a plan that was made while the table was small would, and would be
	// used until the table's statistics are renewed.
	settings = `SET LOCAL synchronous_commit TO off; SET LOCAL plan_cache_mode TO force_custom_plan; SET LOCAL enable_seqscan TO off`

	position = `SELECT block, pg_relation_size('txsvc.transactions') / current_setting('block_size')::bigint
		FROM txsvc.retention WHERE next_at <= clock_timestamp() FOR UPDATE SKIP LOCKED`

	// remove leaves rows on which somebody works for the next sweep. It takes the first block, the one after the last, the
	// age, and that of abandoned rows.
	remove = `DELETE FROM txsvc.transactions WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM txsvc.transactions t
		WHERE ctid >= $1::tid AND ctid < $2::tid AND delivery <> 'pending' AND state <> 'prepared'
			AND (delivery <> '` + producers.Delivery + `' OR ` + producers.IsVisible + `)
			AND decided_at < clock_timestamp() - CASE WHEN abandoned THEN $4::interval ELSE $3::interval END
		FOR UPDATE SKIP LOCKED))`

	// forget deletes entries of txsvc.visible whose rows a sweep has deleted, some at a time. It goes from one process to the next.
	// An entry names rows that began before it and were decided soon after: a day later at most.
	forget = `WITH RECURSIVE p AS (
			(SELECT producer FROM txsvc.visible ORDER BY producer LIMIT 1)
		UNION ALL
			SELECT (SELECT producer FROM txsvc.visible v WHERE v.producer > p.producer ORDER BY producer LIMIT 1) FROM p WHERE producer IS NOT NULL)
		DELETE FROM txsvc.visible WHERE ctid = ANY (ARRAY(
			SELECT v.ctid FROM p, LATERAL (SELECT ctid FROM txsvc.visible v
				WHERE v.producer = p.producer AND v.before < clock_timestamp() - $1::interval - interval '1 day' ORDER BY v.before LIMIT 5000) AS v
			LIMIT 5000))`

	move = `UPDATE txsvc.retention SET block = $1, next_at = clock_timestamp() + $2::interval`
)

// Sweeper deletes transactions that are older than an age, and whose message, if they have one, is known to be visible. It
// walks through the table block by block, so that no index is needed for it, in steps that take a few milliseconds and lock
// nothing but the rows that they delete. Replicas share one walk.
type Sweeper struct {
	db      *postgres.DB
	age     time.Duration
	log     *slog.Logger
	deleted prometheus.Counter
}

// New returns a Sweeper, and registers its counter. The age is at least a minute.
func New(db *postgres.DB, age time.Duration, reg prometheus.Registerer, log *slog.Logger) *Sweeper {
	s := &Sweeper{db: db, age: age, log: log, deleted: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "txsvc_transactions_deleted_total", Help: "Transactions deleted because they are older than the retention.",
	})}
	reg.MustRegister(s.deleted)
	return s
}

// Run deletes until ctx is done.
func (s *Sweeper) Run(ctx context.Context) {
	var warned time.Time
	for ctx.Err() == nil {
		start := time.Now()
		stepped, deleted, err := s.Step(ctx)
		s.deleted.Add(float64(deleted))
		switch {
		case err != nil && ctx.Err() == nil:
			if time.Since(warned) > warnEvery {
				warned = time.Now()
				s.log.WarnContext(ctx, "old transactions cannot be deleted; it is tried again all the time", "error", err)
			}
			pause.For(ctx, retryAfter)
		case !stepped:
			pause.For(ctx, retryAfter)
		default:
			pause.For(ctx, max(stepPause, 2*time.Since(start)))
		}
	}
}

// Step does one step of the sweep, unless none is due or another replica does it, and returns how many transactions it
// deleted.
func (s *Sweeper) Step(ctx context.Context) (stepped bool, deleted int64, err error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.db.Pool(), func(tx pgx.Tx) error {
		var block, size int64
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, position).Scan(&block, &size); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, remove, tid(block), tid(block+stepBlocks), s.age, max(s.age, fenceAge))
		if err != nil {
			return err
		}
		stepped, deleted = true, tag.RowsAffected()
		if _, err := tx.Exec(ctx, forget, s.age+maxRest); err != nil {
			return err
		}
		next, rest := block+stepBlocks, time.Duration(0)
		if next >= size {
			next, rest = 0, min(max(s.age/restPart, minRest), maxRest)
		}
		_, err = tx.Exec(ctx, move, next, rest)
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("deleting old transactions: %w", err)
	}
	return stepped, deleted, nil
}

// tid is the place of the first row of a block.
func tid(block int64) string { return fmt.Sprintf("(%d,0)", block) }
