package localtx

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/txn"
)

// Ordered transactions of one topic and shard key are in a line. Each takes an advisory lock on the two before its place, and
// holds it until others see its COMMIT, so that places are in the order of the COMMITs. The rows before it are read after
// the COMMIT, when no earlier place can be taken any more, and a row that is delivered stays so.
//
// At the isolation levels whose snapshot lasts for the transaction, the lock has to come before the snapshot, or the
// transaction would not see the effects of those for which it waited. There the session takes the lock, before BEGIN.

// takeLine is the first statement after BEGIN. Locks of two lines with one hash are one lock: their transactions wait for
// each other without need.
const takeLine = `SELECT pg_advisory_xact_lock($1)`

// takeLineBefore is takeLine for a session, which holds the lock over the end of this transaction.
const takeLineBefore = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = %d; SELECT pg_advisory_lock(%d); COMMIT`

// line is the key of the lock of the attempt's line.
func (r *run) line() int64 { return lineLock(r.attempt.Kind.Topic, r.attempt.Request.ShardKey) }

func lineLock(topic, shardKey string) int64 {
	h := fnv.New64a()
	_, _ = h.Write(append(binary.AppendUvarint(nil, uint64(len(topic))), topic+shardKey...)) // it never fails
	return int64(h.Sum64())
}

// queueLock adds the lock of an ordered transaction's line to a pipeline.
func (r *run) queueLock(batch *pgx.Batch) {
	if r.attempt.Kind.Ordered {
		batch.Queue(takeLine, r.line())
	}
}

// lockLine is queueLock for a transaction that runs in steps.
func (r *run) lockLine(ctx context.Context, tx pgx.Tx) error {
	if !r.attempt.Kind.Ordered || r.locksSession() {
		return nil
	}
	r.enter(phaseLine)
	_, err := tx.Exec(ctx, takeLine, r.line())
	return err
}

// locksSession says whether the session takes the lock, and holds it until the reset.
func (r *run) locksSession() bool { return r.attempt.Kind.Ordered && r.task.Snapshot }

// lockSession lets the session take the lock, where the transaction's snapshot has to come later.
func (r *run) lockSession(ctx context.Context) error {
	if !r.locksSession() {
		return nil
	}
	if r.session.Pooled() {
		return unavailable(nil, detailPooled)
	}
	r.enter(phaseLine)
	_, err := r.conn.Exec(ctx, fmt.Sprintf(takeLineBefore, r.statementTimeout(), r.line()), pgx.QueryExecModeSimpleProtocol)
	return err
}

// asksAhead says whether the request delivers its message itself, and so has to know which rows come first.
func (r *run) asksAhead() bool { return r.attempt.Kind.Ordered && r.attempt.Via != txn.ViaOutbox }

// queueAhead adds the query of the rows before this one, after COMMIT, in the same round trip. A plan that was made while the
// table was small would read all of it.
func (r *run) queueAhead(batch *pgx.Batch) {
	if !r.asksAhead() {
		return
	}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
	batch.Queue(`SET LOCAL enable_seqscan TO off`)
	batch.Queue(rows.Ahead, r.attempt.Kind.Topic, r.attempt.Request.ShardKey, r.attempt.Request.ID)
	batch.Queue(`COMMIT`)
}

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
	found, err := results.Query()
	if err != nil {
		return
	}
	before, err := r.runner.rows.ReadAhead(found)
	if _, commitErr := results.Exec(); err == nil && commitErr == nil {
		r.head = before.Free
	}
}
