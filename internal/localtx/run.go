package localtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/failpoint"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// hangTimeout is how long after a kind's timeout a server that says nothing is given up, with the outcome unknown. The
	// server's own statement_timeout comes first where the server lives.
	hangTimeout = 2 * time.Second
	// settleTimeout is how long a request waits to find out an unknown outcome before it is answered "unknown".
	settleTimeout = 2 * time.Second
	// maxRuns bounds how often one local transaction is run, on serialization failures and deadlocks.
	maxRuns = 6
	// rerunWithin is the longest pause before the second run; it doubles with every further one.
	rerunWithin = 4 * time.Millisecond
)

// Run runs the local transaction of the attempt; see txn.Store. Each run has the kind's timeout for itself: a deadlock
// alone takes PostgreSQL a second to see.
func (s *Store) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	w, err := plan(s.programs[a.Kind.Name], inputOf(a), a.Kind.ResultBytes())
	if err != nil {
		return s.refused(ctx, a, err)
	}
	reopen := false
	for run := 1; ; run++ {
		o, again := s.runOnce(ctx, a, w, reopen)
		if again == runDone {
			return o
		}
		if run == maxRuns {
			return failed(unavailable(o.Err, "the local transaction kept failing to serialize; nothing was changed"))
		}
		if again == runAgain {
			pause(ctx, rand.N(rerunWithin<<run))
		}
		reopen = reopen || again == runReopen
	}
}

// again says whether a local transaction is to be run once more.
type again int

const (
	runDone   again = iota
	runAgain        // serialization failure or deadlock
	runReopen       // the id's row only fences other attempts: take its place
)

func failed(err error) txn.Outcome { return txn.Outcome{Kind: txn.OutcomeFailed, Err: err} }

func unavailable(cause error, detail string) *txn.Error {
	return txn.DatabaseUnavailable(cause, "%s", detail)
}

// noAnswer is for a statement that the database did not take, and says why where that is known.
func noAnswer(cause error) *txn.Error {
	if told, ok := errors.AsType[*txn.Error](cause); ok && told.Code == txn.CodeDatabaseUnavailable {
		return unavailable(cause, told.Detail+"; nothing was changed")
	}
	return unavailable(cause, detailNoAnswer)
}

func (s *Store) runOnce(ctx context.Context, a *txn.Attempt, w work, reopen bool) (txn.Outcome, again) {
	conn, err := s.acquire(ctx, a.Kind.Timeout)
	if errors.Is(err, errAllInUse) {
		return failed(unavailable(err, detailAllInUse)), runDone
	}
	if err != nil {
		return failed(noAnswer(err)), runDone
	}
	defer func() { <-s.slots }()
	r := &run{store: s, attempt: a, work: w, conn: conn, reopen: reopen, reset: s.resetOf(a, w)}
	hang, cancel := context.WithTimeout(ctx, a.Kind.Timeout+hangTimeout)
	err = r.do(hang)
	r.overdue, r.lost = hang.Err() != nil, conn.Conn().IsClosed()
	cancel()
	if err == nil {
		switch {
		case r.dirty:
			_ = conn.Conn().Close(ctx)
		case r.reset.apart:
			s.clean(ctx, conn, "")
		}
		conn.Release()
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: r.row, Lease: r.lease, Head: r.head}, runDone
	}
	s.rollback(ctx, conn, r.reset)
	return s.judge(ctx, r, err)
}

var errAllInUse = errors.New("all connections for local transactions are in use")

// acquire returns a connection, and takes a slot with it.
func (s *Store) acquire(ctx context.Context, timeout time.Duration) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, errAllInUse
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		<-s.slots
		return nil, fmt.Errorf("acquiring a connection: %w", err)
	}
	return conn, nil
}

// rollback ends what is left of a failed local transaction and gives the connection back; where that fails, closing the
// connection makes the server do the same.
func (s *Store) rollback(ctx context.Context, conn *pgxpool.Conn, how reset) {
	defer conn.Release()
	if conn.Conn().IsClosed() {
		return
	}
	end := ""
	if conn.Conn().PgConn().TxStatus() != 'I' {
		end = `ROLLBACK; `
	}
	switch {
	case how.of != residueNone:
		s.clean(ctx, conn, end)
	case end != "":
		ending, cancel := context.WithTimeout(ctx, hangTimeout)
		defer cancel()
		if _, err := conn.Exec(ending, end); err != nil {
			_ = conn.Conn().Close(ending)
		}
	}
}

// run is one run of a local transaction.
type run struct {
	store   *Store
	attempt *txn.Attempt
	work    work
	conn    *pgxpool.Conn
	reopen  bool

	row   *txn.Transaction
	lease txn.Lease
	head  bool // nothing of the line was pending before it

	reset       reset
	dirty       bool // the session is to be closed, since resetting it was not enough
	sessionLock bool // the session holds the line's lock; the reset ends it
	// What went wrong, for judge.
	commitSent bool // COMMIT left with what failed
	committing bool // the error is that of COMMIT itself
	atLine     bool // the error is that of the wait for the line
	atRow      bool // the error is that of writing the row
	ended      bool // the handler ended the transaction on its own
	overdue    bool // the server was given up
	lost       bool // the connection is gone
}

func (r *run) do(ctx context.Context) error {
	if r.work.handle == nil && !r.reopen && !locksSession(r.attempt, r.work) && !failpoint.Armed("local") {
		return r.pipeline(ctx)
	}
	return r.step(ctx)
}

// prepare builds the row and starts the lease.
func (r *run) prepare(result json.RawMessage) ([]any, error) {
	now := time.Now()
	r.row = rowOf(r.attempt, txn.StateCommitted, now)
	r.row.Result = result
	r.startLease(now)
	return rowArgs(r.attempt, r.row, r.firstLease())
}

// firstLease is nothing for a row that the relay is to deliver: it is due at once.
func (r *run) firstLease() time.Duration {
	if r.attempt.Outbox {
		return 0
	}
	return r.store.timing.Lease()
}

func (r *run) startLease(now time.Time) {
	r.lease = txn.Lease{ID: r.attempt.Request.ID, Epoch: 1, WriteBefore: now.Add(r.store.timing.WriteWithin)}
}

// timeoutStatement bounds each statement on the server's side, where a cancelled one is certain to have done nothing.
// Its text is the same for all transactions of a kind, so that it is prepared once.
func (r *run) timeoutStatement() (string, bool) {
	timeout := r.attempt.Kind.Timeout
	if timeout == statementTimeout {
		return "", false
	}
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d`, max(timeout.Milliseconds(), 1)), true
}

// errNotCommitted: COMMIT was answered with ROLLBACK, because the transaction had failed before.
var errNotCommitted = errors.New("COMMIT of a failed transaction")

func committed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.String() != "COMMIT" {
		return errNotCommitted
	}
	return err
}

// scanKept reads what the statement of SQL.Keep returns.
func scanKept(row pgx.Row) (result json.RawMessage, decidedAt time.Time, err error) {
	err = row.Scan((*[]byte)(&result), &decidedAt)
	return result, decidedAt.UTC(), err
}
