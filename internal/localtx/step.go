package localtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/failpoint"
)

var (
	// errFenced: the row that is to be replaced fences this half message, or was decided meanwhile.
	errFenced  = errors.New("the id's row cannot be replaced")
	errEnded   = errors.New("the handler ended the transaction: that is for the service to do")
	errOpen    = errors.New("the handler left rows open")
	errLost    = errors.New("the connection to the database broke")
	errAborted = errors.New("the handler passed over an error of PostgreSQL, which had aborted the transaction")
)

// step runs a local transaction in several round trips.
func (r *run) step(ctx context.Context) error {
	if err := r.lockSession(ctx); err != nil {
		return err
	}
	tx, err := r.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: r.beginSteps()})
	if err != nil {
		return err
	}
	args, err := r.prepare(nil)
	if err != nil {
		return err
	}
	if err := r.lockLine(ctx, tx); err != nil {
		return err
	}
	if err := r.writeRow(ctx, tx, args); err != nil {
		return err
	}
	result, err := r.body(ctx, tx)
	if err := r.checkBody(err); err != nil {
		return err
	}
	failpoint.Hit("local")
	return r.finish(ctx, result)
}

// beginSteps is BEGIN with the limits of the transaction, as one text. A session whose client fell silent keeps the id's
// key, and with it check-backs and further attempts waiting, no longer than the client would have.
func (r *run) beginSteps() string {
	timeout := r.attempt.Kind.Timeout
	begin := fmt.Sprintf(`%s; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d`,
		r.work.begin, max(timeout.Milliseconds(), 1), (timeout + hangTimeout).Milliseconds())
	if local := sessionOf(r.conn.Conn().PgConn()).local; local != "" {
		begin += `; SELECT ` + strings.TrimPrefix(local, ", ")
	}
	return begin
}

func (r *run) body(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
	if r.work.handle == nil {
		return r.work.execute(ctx, tx)
	}
	return r.work.handle(ctx, guardedTx{tx})
}

func (r *run) writeRow(ctx context.Context, tx pgx.Tx, args []any) error {
	statement := statementsOf(r.attempt).insert
	if r.reopen {
		statement = statementsOf(r.attempt).reopen
	}
	tag, err := tx.Exec(ctx, statement, args...)
	if err != nil {
		r.atRow = true
		return err
	}
	if tag.RowsAffected() != 1 {
		return errFenced
	}
	return nil
}

// checkBody looks at what the handler left behind: what it may have done with the transaction is not known by its error.
func (r *run) checkBody(err error) error {
	conn := r.conn.Conn().PgConn()
	switch {
	case conn.IsClosed():
		return errors.Join(err, errLost)
	case conn.IsBusy():
		return errors.Join(err, errOpen)
	case conn.TxStatus() == 'I':
		r.ended = true
		return errors.Join(err, errEnded)
	case err == nil && conn.TxStatus() == 'E':
		return errAborted
	}
	return err
}

// guardedTx keeps the end of the transaction out of a handler's reach.
type guardedTx struct{ pgx.Tx }

func (guardedTx) Commit(context.Context) error   { return errEnded }
func (guardedTx) Rollback(context.Context) error { return errEnded }

// finish stores the result, starts the lease anew (the body may have taken long), and commits, in one round trip.
func (r *run) finish(ctx context.Context, result json.RawMessage) error {
	now := time.Now()
	r.startLease(now)
	r.row.Result, r.row.DecidedAt = result, stamp(now)
	batch := &pgx.Batch{}
	batch.Queue(`UPDATE txsvc.transactions SET result = $2, decided_at = $3, lease_until = clock_timestamp() + $4::interval
		WHERE id = $1`, r.row.ID, jsonArg(result), r.row.DecidedAt, r.firstLease())
	r.queueCommit(batch)
	r.queueAhead(batch)
	r.sendingCommit()
	results := r.conn.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		err = r.readReset(results)
	}
	if err == nil {
		r.committing = true
		err = r.committed(results.Exec())
	}
	if err == nil {
		r.readClean(results)
		r.readAhead(results)
	}
	if closeErr := results.Close(); err == nil && closeErr != nil && !r.committing {
		err = closeErr
	}
	return err
}
