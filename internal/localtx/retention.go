package localtx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/pause"
)

const (
	// sweepBlocks is how much of the table one step looks at, in blocks (of 8 KiB, as PostgreSQL is built): some 5,000
	// transactions.
	sweepBlocks = 256
	// sweepPause is the least time between two steps of a process: at most 20 MiB are read in a second.
	sweepPause = 100 * time.Millisecond
	// A sweep begins again when a part of the age has passed since the last one ended, within these bounds.
	minRest, maxRest = time.Minute, time.Hour
	restPart         = 100
	// sweepRetry is the pause after an error, and between looks at whether another sweep is due.
	sweepRetry = 5 * time.Second
)

// Retention deletes transactions that are older than an age, and whose message, if they have one, is known to be
// visible. It walks through the table block by block, so that no index has to be kept for it, in steps that take a few
// milliseconds and lock nothing but what they delete. Replicas share one walk.
type Retention struct {
	store   *Store
	age     time.Duration
	log     *slog.Logger
	deleted prometheus.Counter
}

// NewRetention registers its counter. The age is at least a minute.
func NewRetention(store *Store, age time.Duration, reg prometheus.Registerer, log *slog.Logger) *Retention {
	r := &Retention{store: store, age: age, log: log, deleted: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "txsvc_transactions_deleted_total", Help: "Transactions deleted because they are older than the retention.",
	})}
	reg.MustRegister(r.deleted)
	return r
}

// Run deletes until ctx is done.
func (r *Retention) Run(ctx context.Context) {
	var warned time.Time
	for ctx.Err() == nil {
		start := time.Now()
		stepped, deleted, err := r.Step(ctx)
		r.deleted.Add(float64(deleted))
		switch {
		case err != nil && ctx.Err() == nil:
			if time.Since(warned) > time.Minute {
				warned = time.Now()
				r.log.WarnContext(ctx, "old transactions cannot be deleted; it is tried again all the time", "error", err)
			}
			pause.For(ctx, sweepRetry)
		case !stepped:
			pause.For(ctx, sweepRetry)
		default:
			pause.For(ctx, max(sweepPause, 2*time.Since(start)))
		}
	}
}

const (
	// A step that is forgotten in a crash is done again. Its plan is made anew each time, and never reads the whole table: one
	// that was made while the table was small would, and would be kept until its statistics are renewed.
	sweepSettings = `SET LOCAL synchronous_commit TO off; SET LOCAL plan_cache_mode TO force_custom_plan; SET LOCAL enable_seqscan TO off`

	sweepNext = `SELECT block, pg_relation_size('txsvc.transactions') / current_setting('block_size')::bigint
		FROM txsvc.retention WHERE next_at <= clock_timestamp() FOR UPDATE SKIP LOCKED`

	// Rows that somebody works on are left for the next sweep.
	sweepDelete = `DELETE FROM txsvc.transactions WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM txsvc.transactions
		WHERE ctid >= $1::tid AND ctid < $2::tid AND delivery <> 'pending' AND state <> 'prepared'
			AND decided_at < clock_timestamp() - $3::interval
		FOR UPDATE SKIP LOCKED))`

	sweepMove = `UPDATE txsvc.retention SET block = $1, next_at = clock_timestamp() + $2::interval`
)

// Step does one step of the sweep, unless none is due or another replica does it, and returns how many transactions it
// deleted.
func (r *Retention) Step(ctx context.Context) (stepped bool, deleted int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, r.store.pool, func(tx pgx.Tx) error {
		var block, size int64
		if _, err := tx.Exec(ctx, sweepSettings); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, sweepNext).Scan(&block, &size); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sweepDelete, tid(block), tid(block+sweepBlocks), r.age)
		if err != nil {
			return err
		}
		stepped, deleted = true, tag.RowsAffected()
		next, wait := block+sweepBlocks, time.Duration(0)
		if next >= size {
			next, wait = 0, min(max(r.age/restPart, minRest), maxRest)
		}
		_, err = tx.Exec(ctx, sweepMove, next, wait)
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
