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
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/postgres/rows"
)

// steps runs a local transaction in several round trips.
func (r *run) steps(ctx context.Context) error {
	if err := r.lockSession(ctx); err != nil {
		return err
	}
	r.enter(phaseBegin)
	tx, err := r.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: r.beginSteps()})
	if err != nil {
		return err
	}
	row, err := r.prepare(nil)
	if err != nil {
		return err
	}
	if err := r.lockLine(ctx, tx); err != nil {
		return err
	}
	r.enter(phaseRow)
	tag, err := tx.Exec(ctx, r.write, row...)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errFenced
	}
	r.enter(phaseBody)
	result, err := r.body(ctx, tx)
	if err := r.checkBody(err); err != nil {
		return err
	}
	failpoint.Hit("local")
	return r.finish(ctx, result)
}

// enter notes a step that is sent, and whose reply is waited for.
func (r *run) enter(p phase) { r.at, r.sent = p, p }

// beginSteps is BEGIN with the limits of the transaction, as one text. A session whose client fell silent occupies the id's
// key, for which check-backs and further attempts wait, no longer than the client would have.
func (r *run) beginSteps() string {
	idle := r.attempt.Kind.Timeout + r.runner.timing.HangWithin
	begin := fmt.Sprintf(`%s; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d`,
		r.task.Begin, r.statementTimeout(), idle.Milliseconds())
	if local := r.session.LocalSettings(); local != "" {
		begin += `; SELECT ` + strings.TrimPrefix(local, ", ")
	}
	return begin
}

func (r *run) body(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
	if r.task.Handle == nil {
		return execute(ctx, tx, r.task)
	}
	return r.task.Handle(ctx, guardedTx{tx})
}

// execute runs the statements of a pipeline one by one.
func execute(ctx context.Context, tx pgx.Tx, w task.Task) (json.RawMessage, error) {
	for i, s := range w.Statements {
		if w.Stores && i == len(w.Statements)-1 {
			result, _, err := scanStored(tx.QueryRow(ctx, s.SQL, s.Args...))
			return result, err
		}
		if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
			return nil, err
		}
	}
	return w.Result, nil
}

// checkBody looks at the state in which the handler left the transaction, because its error alone does not say that.
func (r *run) checkBody(err error) error {
	conn := r.conn.Conn().PgConn()
	switch {
	case conn.IsClosed():
		return errors.Join(err, errLost)
	case conn.IsBusy():
		return errors.Join(err, errOpen)
	case conn.TxStatus() == 'I':
		r.at = phaseEnded
		return errors.Join(err, errEnded)
	case err == nil && conn.TxStatus() == 'E':
		return errAborted
	}
	return err
}

// guardedTx does not let a handler end the transaction.
type guardedTx struct{ pgx.Tx }

func (guardedTx) Commit(context.Context) error   { return errEnded }
func (guardedTx) Rollback(context.Context) error { return errEnded }

// finish stores the result, starts the lease anew (the body may have taken long), and commits, in one round trip.
func (r *run) finish(ctx context.Context, result json.RawMessage) error {
	now := time.Now()
	r.startLease(now)
	r.row.Result, r.row.DecidedAt = result, rows.Stamp(now)
	batch := &pgx.Batch{}
	batch.Queue(rows.Finish, r.row.ID, rows.JSON(result), r.row.DecidedAt, r.firstLease())
	r.queueCommit(batch)
	results := r.conn.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		err = r.readCommit(results)
	}
	_ = results.Close() // as in pipeline
	return err
}
