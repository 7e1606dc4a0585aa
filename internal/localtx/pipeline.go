package localtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pipeline runs statements that are known beforehand in one round trip.
func (r *run) pipeline(ctx context.Context) error {
	row, err := r.prepare(r.task.Result)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(r.task.Begin)
	if statement, ok := r.timeoutStatement(); ok {
		batch.Queue(statement)
	}
	r.queueLock(batch)
	before := batch.Len()
	batch.Queue(r.write, row...)
	for _, s := range r.task.Statements {
		batch.Queue(s.SQL, s.Args...)
	}
	r.queueCommit(batch)
	results := r.conn.SendBatch(ctx, batch)
	err = r.read(results, before)
	_ = results.Close() // its error is that of a reply that was read, or comes after COMMIT's and does not matter
	return err
}

// read takes the replies in order.
func (r *run) read(results pgx.BatchResults, before int) error {
	if r.attempt.Kind.Ordered {
		r.at = phaseLine
	}
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	r.at = phaseRow
	if _, err := results.Exec(); err != nil {
		return err
	}
	r.at = phaseBody
	last := len(r.task.Statements) - 1
	for i := range r.task.Statements {
		if r.task.Stores && i == last {
			var err error
			if r.row.Result, r.row.DecidedAt, err = scanStored(results.QueryRow()); err != nil {
				return err
			}
			continue
		}
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if endsTransaction(tag) {
			r.at = phaseEnded
			return errEnded
		}
	}
	return r.readCommit(results)
}

// endsTransaction says that a Planner's statement was one that only the service may give. What came of it is read off the
// row.
func endsTransaction(tag pgconn.CommandTag) bool {
	switch tag.String() {
	case "COMMIT", "ROLLBACK", "COMMIT PREPARED", "PREPARE TRANSACTION":
		return true
	}
	return false
}
