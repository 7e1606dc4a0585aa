package localtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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
	if err := r.lockLine(ctx, tx); err != nil {
		return err
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
func execute(ctx context.Context, tx pgx.Tx, w task.Task) (result json.RawMessage, err error) {
	for i, s := range w.Statements {
		if w.Last != nil && i == len(w.Statements)-1 {
			err = tx.QueryRow(ctx, w.Last.Alone(), append(s.Args, w.ResultMost)...).Scan((*[]byte)(&result))
			return result, err
		}
		if _, err := (guardedTx{tx}).Exec(ctx, s.SQL, s.Args...); err != nil {
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

// finish writes the row with the result, and commits. Both go in one round trip, unless the row takes the place of another,
// which may not be there any more.
func (r *run) finish(ctx context.Context, result json.RawMessage) error {
	r.prepare(result)
	batch := &pgx.Batch{}
	if r.replaces {
		if err := r.replace(ctx); err != nil {
			return err
		}
	} else {
		row, err := r.insert(1)
		if err != nil {
			return err
		}
		sql, args := row.Statement(result)
		batch.Queue(sql, args...)
	}
	r.queueCommit(batch)
	results := r.conn.SendBatch(ctx, batch)
	err := r.readFinish(results)
	_ = results.Close() // as in pipeline
	return err
}

func (r *run) readFinish(results pgx.BatchResults) (err error) {
	if !r.replaces {
		r.at = phaseRow
		if r.row.DecidedAt, err = rows.ScanDecided(results.QueryRow()); err != nil {
			return err
		}
	}
	return r.readCommit(results)
}

// replace writes the row in the place of an abandoned one.
func (r *run) replace(ctx context.Context) error {
	r.runner.tracked.Explicit(r.attempt.CreatedAt) // it was to be tracked, as long as no row was known to be there
	sql, args, err := rows.Replace(r.attempt, r.row, r.firstLease())
	if err != nil {
		return err
	}
	r.enter(phaseRow)
	r.row.DecidedAt, err = rows.ScanDecided(r.conn.QueryRow(ctx, sql, args...))
	if errors.Is(err, pgx.ErrNoRows) {
		return errFenced
	}
	return err
}
