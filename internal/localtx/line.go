package localtx

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// Ordered transactions of one topic and shard key stand in a line. Each takes an advisory lock on the two before its place,
// and keeps it until its COMMIT is seen by others, so that places are in the order of the COMMITs. What is before it
// is read after the COMMIT, when no earlier place can be taken any more, and what is delivered stays so.
//
// At the isolation levels whose snapshot lasts for the transaction, the lock has to come before the snapshot, or the
// transaction would not see what those did for which it waited. There the session takes it, before BEGIN.

// takeLine is the first statement after BEGIN. Locks of two lines with one hash are one lock: their transactions wait for
// each other without need.
const takeLine = `SELECT pg_advisory_xact_lock($1)`

// ahead finds the pending rows before a row of its line. Those that a request still works on are worth waiting for.
const ahead = `SELECT id, attempts = 0 AND lease_until > clock_timestamp() FROM txsvc.transactions
	WHERE topic = $1 AND shard_key = $2 AND ordered AND delivery = 'pending'
		AND line < (SELECT line FROM txsvc.transactions WHERE id = $3)
	ORDER BY line LIMIT 8`

const (
	aheadLimit  = 8
	firstLook   = 2 * time.Millisecond // between looks at what is ahead; it grows
	lastLook    = 20 * time.Millisecond
	inLineRetry = 2 * time.Second
)

// lineLock is the key of a line's advisory lock.
func lineLock(topic, shardKey string) int64 {
	h := fnv.New64a()
	_, _ = h.Write(append(binary.AppendUvarint(nil, uint64(len(topic))), topic+shardKey...)) // it never fails
	return int64(h.Sum64())
}

func (r *run) line() int64 { return lineLock(r.attempt.Kind.Topic, r.attempt.Request.ShardKey) }

// queueLock adds the lock of an ordered transaction's line to a pipeline.
func (r *run) queueLock(batch *pgx.Batch) {
	if r.attempt.Kind.Ordered {
		batch.Queue(takeLine, r.line())
	}
}

// lockLine is queueLock for a transaction that runs in steps.
func (r *run) lockLine(ctx context.Context, tx pgx.Tx) error {
	if !r.attempt.Kind.Ordered || r.sessionLock {
		return nil
	}
	_, err := tx.Exec(ctx, takeLine, r.line())
	r.atLine = err != nil
	return err
}

func locksSession(a *txn.Attempt, w work) bool { return a.Kind.Ordered && w.snapshot }

// lockSession lets the session take the lock, where the transaction's snapshot has to come later. The session keeps it
// over the end of the transaction that this is.
func (r *run) lockSession(ctx context.Context) error {
	if !locksSession(r.attempt, r.work) {
		return nil
	}
	if sessionOf(r.conn.Conn().PgConn()).pooled {
		return unavailable(nil, detailPooled)
	}
	r.sessionLock = true
	_, err := r.conn.Exec(ctx, fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = %d; SELECT pg_advisory_lock(%d); COMMIT`,
		max(r.attempt.Kind.Timeout.Milliseconds(), 1), r.line()), pgx.QueryExecModeSimpleProtocol)
	r.atLine = err != nil
	return err
}

// queueAhead adds the look at what is ahead, after COMMIT, in the same round trip. A plan that was made while the table was
// small would read all of it.
func (r *run) queueAhead(batch *pgx.Batch) {
	if !r.asksAhead() {
		return
	}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
	batch.Queue(`SET LOCAL enable_seqscan TO off`)
	batch.Queue(ahead, r.attempt.Kind.Topic, r.attempt.Request.ShardKey, r.attempt.Request.ID)
	batch.Queue(`COMMIT`)
}

// asksAhead: where the relay delivers, it looks itself.
func (r *run) asksAhead() bool { return r.attempt.Kind.Ordered && r.attempt.Via != txn.ViaOutbox }

// readAhead takes the replies of queueAhead. The transaction is committed, whatever goes wrong here.
func (r *run) readAhead(results pgx.BatchResults) {
	if !r.asksAhead() {
		return
	}
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return
		}
	}
	rows, err := results.Query()
	if err != nil {
		return
	}
	free, _, err := r.store.free(rows)
	if _, commitErr := results.Exec(); err == nil && commitErr == nil {
		r.head = free
	}
}

// free says whether all rows that are ahead are known to be delivered, by this process's marks, and whether the others
// are worth waiting for.
func (s *Store) free(rows pgx.Rows) (free, soon bool, err error) {
	defer rows.Close()
	free, soon = true, true
	n := 0
	for rows.Next() {
		var id string
		var worked bool
		if err := rows.Scan(&id, &worked); err != nil {
			return false, false, err
		}
		if n++; s.marker.of(id).at.IsZero() {
			free, soon = false, soon && worked
		}
	}
	return free && n < aheadLimit, soon, rows.Err()
}

// AwaitHead waits until nothing is pending ahead of an ordered row; see txn.Store.
func (s *Store) AwaitHead(ctx context.Context, t *txn.Transaction) bool {
	for look := firstLook; ; look = min(look*3/2, lastLook) {
		rows, err := s.pool.Query(ctx, ahead, pgx.QueryExecModeCacheDescribe, t.Topic, t.ShardKey, t.ID)
		if err != nil {
			return false
		}
		free, soon, err := s.free(rows)
		if err != nil || free || !soon {
			return err == nil && free
		}
		pause.For(ctx, look)
		if ctx.Err() != nil {
			return false
		}
	}
}
