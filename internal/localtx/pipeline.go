package localtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres/rows"
)

// pipeline runs statements that are known beforehand in one round trip.
func (r *run) pipeline(ctx context.Context) error {
	r.prepare(r.task.Result)
	batch := &pgx.Batch{}
	batch.Queue(r.task.Begin)
	if statement, ok := r.timeoutStatement(); ok {
		batch.Queue(statement)
	}
	r.queueLock(batch)
	before := batch.Len()
	if err := r.queueBody(batch); err != nil {
		return err
	}
	r.queueCommit(batch)
	results := r.conn.SendBatch(ctx, batch)
	err := r.read(results, before)
	_ = results.Close() // its error is that of a reply that was read, or comes after COMMIT's and does not matter
	return err
}

// queueBody adds the statements of the kind, and the row: in one statement with the last of them where that has the result.
func (r *run) queueBody(batch *pgx.Batch) error {
	own := r.task.Statements
	if r.task.Last == nil {
		for _, s := range own {
			if err := guard(s.SQL); err != nil {
				return err
			}
		}
		for _, s := range own {
			batch.Queue(s.SQL, s.Args...)
		}
		row, err := r.insert(1)
		if err == nil {
			sql, args := row.Statement(r.task.Result)
			batch.Queue(sql, args...)
		}
		return err
	}
	last := len(own) - 1
	for _, s := range own[:last] {
		batch.Queue(s.SQL, s.Args...)
	}
	row, err := r.insert(r.task.Last.First())
	if err == nil {
		batch.Queue(r.task.Last.Into(row.Text), append(append(own[last].Args, r.task.ResultMost), row.Args...)...)
	}
	return err
}

// readRow takes the reply to the statement that writes the row.
func (r *run) readRow(results pgx.BatchResults) (err error) {
	if r.task.Last != nil {
		r.row.Result, r.row.DecidedAt, err = scanStored(results.QueryRow())
		return err
	}
	r.at = phaseRow
	r.row.DecidedAt, err = rows.ScanDecided(results.QueryRow())
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
	r.at = phaseBody
	own := r.task.Statements
	if r.task.Last != nil { // the last one writes the row, too
		own = own[:len(own)-1]
	}
	for range own {
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if endsTransaction(tag) {
			r.at = phaseEnded
			return errEnded
		}
	}
	if err := r.readRow(results); err != nil {
		return err
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
