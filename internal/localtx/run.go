package localtx

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/failpoint"
	"github.com/txsvc/txsvc/internal/localtx/residue"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// run is one run of a local transaction.
type run struct {
	runner  *Runner
	attempt *txn.Attempt
	task    task.Task
	conn    *pgxpool.Conn
	session *sessions.Session
	reset   residue.Reset
	inSteps bool

	replaces bool // the row takes the place of an abandoned one

	at, sent phase
	row      *txn.Transaction
	lease    txn.Lease
	tracked  bool // the process keeps track of its message
	head     bool // nothing of the line was pending before it
}

func newRun(s *Runner, conn *pgxpool.Conn, a *txn.Attempt, w task.Task, replaces bool) *run {
	r := &run{runner: s, attempt: a, task: w, conn: conn, session: sessions.Of(conn.Conn()), replaces: replaces}
	// A pipeline could not stop when there is no row to be replaced, nor commit between a session's lock and BEGIN.
	r.inSteps = w.Handle != nil || replaces || r.locksSession() || failpoint.Armed("local")
	r.reset = s.residue.After(r.session, r.leaves())
	return r
}

// leaves is the residue that the run itself can leave in its session.
func (r *run) leaves() residue.Residue {
	if r.task.Handle != nil {
		return residue.Any
	}
	most := residue.None
	if r.locksSession() {
		most = residue.State
	}
	for _, s := range r.task.Statements {
		most = max(most, r.runner.residue.Of(s.SQL))
	}
	return most
}

func (r *run) do(ctx context.Context) error {
	if r.inSteps {
		return r.steps(ctx)
	}
	return r.pipeline(ctx)
}

// prepare builds the row with what is known of the result, and starts the lease.
func (r *run) prepare(result json.RawMessage) {
	now := time.Now()
	r.row = rows.Of(r.attempt, txn.StateCommitted, now)
	r.row.Result = result
	r.startLease(now)
}

// insert returns the row as a part of the last statement. Its parameters are numbered from first on.
func (r *run) insert(first int) (rows.Insert, error) {
	r.tracked = !r.attempt.Kind.Ordered && (r.attempt.Via != txn.ViaOutbox || r.attempt.Relay) && r.runner.tracked.Track(r.attempt.CreatedAt, r.attempt.Request.ID)
	return rows.InsertOf(r.attempt, first, r.tracked, r.firstLease())
}

// firstLease is nothing for a row without a half message: it is due at once.
func (r *run) firstLease() time.Duration {
	if r.attempt.Via == txn.ViaOutbox {
		return 0
	}
	return r.runner.lease
}

func (r *run) startLease(now time.Time) {
	r.lease = txn.Lease{ID: r.attempt.Request.ID, Epoch: 1, WriteBefore: now.Add(r.runner.timing.WriteWithin)}
}

// statementTimeout bounds each statement on the server's side, where a cancelled one is certain to have done nothing.
func (r *run) statementTimeout() int64 { return max(r.attempt.Kind.Timeout.Milliseconds(), 1) }

// timeoutStatement sets statementTimeout, unless the session has it anyway. Its text is the same for all transactions of a
// kind, so that it is prepared once.
func (r *run) timeoutStatement() (string, bool) {
	if r.session.Pooled() {
		return fmt.Sprintf(`SELECT set_config('statement_timeout', '%d', true)`, r.statementTimeout()) + r.session.LocalSettings(), true
	}
	if r.attempt.Kind.Timeout == r.runner.timing.StatementWithin {
		return "", false
	}
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d`, r.statementTimeout()), true
}

// queueCommit adds COMMIT to a pipeline, which is about to be sent: from then on COMMIT may be at work, and nothing of the
// service may cancel it. In the same round trip, the session is reset, and the rows before this one in its line are read.
func (r *run) queueCommit(batch *pgx.Batch) {
	r.reset.QueueCommit(batch)
	r.queueAhead(batch)
	r.session.TakeUnconfirmed() // a COMMIT of somebody else may have left it
	r.session.CommitStarts()
	r.sent = phaseCommit
}

// readCommit takes the replies of what queueCommit added.
func (r *run) readCommit(results pgx.BatchResults) error {
	if err := r.reset.ReadBefore(results); err != nil {
		return err
	}
	r.at = phaseCommit
	if err := r.committed(results.Exec()); err != nil {
		return err
	}
	r.reset.ReadAfter(results)
	r.readAhead(results)
	return nil
}

// committed judges the reply to COMMIT.
func (r *run) committed(tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return err
	case tag.String() != "COMMIT":
		return errNotCommitted
	case r.session.TakeUnconfirmed():
		return postgres.ErrUnconfirmed
	}
	return nil
}

// scanStored reads the result and the time of the decision.
func scanStored(row pgx.Row) (result json.RawMessage, decidedAt time.Time, err error) {
	err = row.Scan((*[]byte)(&result), &decidedAt)
	return result, decidedAt.UTC(), err
}
