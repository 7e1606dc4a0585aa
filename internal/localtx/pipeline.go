package localtx

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pipeline runs statements that are known beforehand in one round trip.
func (r *run) pipeline(ctx context.Context) error {
	args, err := r.prepare(r.work.result)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(r.work.begin)
	if statement, ok := r.timeoutStatement(); ok {
		batch.Queue(statement)
	}
	r.queueLock(batch)
	before := batch.Len()
	batch.Queue(statementsOf(r.attempt).insert, args...)
	for _, s := range r.work.statements {
		batch.Queue(s.SQL, s.Args...)
	}
	r.queueCommit(batch)
	r.queueAhead(batch)
	r.sendingCommit()
	results := r.conn.SendBatch(ctx, batch)
	err = r.read(results, before)
	if closeErr := results.Close(); err == nil && closeErr != nil && !r.committing {
		err = closeErr
	}
	return err
}

// read takes the replies in order: those of BEGIN and its like, of the row, of the statements, of COMMIT, and of what
// comes after it.
func (r *run) read(results pgx.BatchResults, before int) error {
	for range before {
		if _, err := results.Exec(); err != nil {
			r.atLine = r.attempt.Kind.Ordered
			return err
		}
	}
	if _, err := results.Exec(); err != nil {
		r.atRow = true
		return err
	}
	last := len(r.work.statements) - 1
	for i := range r.work.statements {
		if r.work.kept && i == last {
			var err error
			if r.row.Result, r.row.DecidedAt, err = scanKept(results.QueryRow()); err != nil {
				return err
			}
			continue
		}
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if endsTransaction(tag) {
			r.ended = true
			return errEnded
		}
	}
	if err := r.readReset(results); err != nil {
		return err
	}
	r.committing = true
	if err := r.committed(results.Exec()); err != nil {
		return err
	}
	r.readClean(results)
	r.readAhead(results)
	return nil
}

// endsTransaction: a Planner's statement was one that is not its to give. What came of it is read off the row.
func endsTransaction(tag pgconn.CommandTag) bool {
	switch tag.String() {
	case "COMMIT", "ROLLBACK", "COMMIT PREPARED", "PREPARE TRANSACTION":
		return true
	}
	return false
}

// execute runs the same statements one by one, where a pipeline cannot: it could not stop at a row that is not there.
func (w work) execute(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
	result := w.result
	for i, s := range w.statements {
		if w.kept && i == len(w.statements)-1 {
			result, _, err := scanKept(tx.QueryRow(ctx, s.SQL, s.Args...))
			return result, err
		}
		if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
			return nil, err
		}
	}
	return result, nil
}
