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
	"github.com/txsvc/txsvc/internal/pause"
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
		if run == maxRuns || a.IsLast(time.Now()) {
			return failed(unavailable(o.Err, "the local transaction kept failing to serialize; nothing was changed"))
		}
		if again == runAgain {
			pause.For(ctx, rand.N(rerunWithin<<run))
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
	r := &run{store: s, attempt: a, work: w, conn: conn, reopen: reopen, reset: s.resetOf(a, w, conn)}
	work, giveUp := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.do(work) }()
	limit := time.NewTimer(a.Kind.Timeout + hangTimeout)
	defer limit.Stop()
	select {
	case err = <-done:
	case <-limit.C:
		waits := s.commitWaits(ctx, conn)
		select {
		case err = <-done:
		default:
			if waits {
				s.left.Go(func() { s.waitOn(ctx, r, done, giveUp) })
				return txn.Outcome{Kind: txn.OutcomeUnknown, Err: errUnconfirmed}, runDone
			}
			giveUp()
			err = <-done
			r.overdue = err != nil
		}
	}
	giveUp()
	r.lost = conn.Conn().IsClosed()
	s.end(ctx, r, err)
	if err == nil {
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: r.row, Lease: r.lease, Head: r.head}, runDone
	}
	return s.judge(ctx, r, err)
}

// commitWaits says of a local transaction that has reached its limit whether its COMMIT may be at work, waiting for
// standbys that do not confirm it, or for a database that does not answer at all.
func (s *Store) commitWaits(ctx context.Context, conn *pgxpool.Conn) bool {
	noted := sessionOf(conn.Conn().PgConn())
	if !noted.commits.Load() {
		return false
	}
	waits, err := s.confirms.await(ctx)
	if err == nil && !waits { // what takes so long is not COMMIT
		noted.commits.Store(false)
	}
	return err != nil
}

// commitLook is how often it is looked whether a COMMIT is still worth waiting for.
const commitLook = time.Second

// waitOn waits for COMMIT after the request was answered "unknown", with its connection and its slot, so that no more wait than
// may run. When a later write was confirmed and nothing has come a while after, the connection is dead.
func (s *Store) waitOn(ctx context.Context, r *run, done <-chan error, giveUp context.CancelFunc) {
	defer giveUp()
	tick := time.NewTicker(commitLook)
	defer tick.Stop()
	confirmed := false
	for {
		select {
		case err := <-done:
			s.end(ctx, r, err)
			return
		case <-s.closing.Done():
			giveUp()
			s.end(ctx, r, <-done)
			return
		case <-tick.C:
		}
		if confirmed {
			giveUp()
		}
		_, err := s.confirms.await(ctx)
		confirmed = err == nil
	}
}

// end gives connection and slot back.
func (s *Store) end(ctx context.Context, r *run, err error) {
	defer func() { <-s.slots }()
	if conn := r.conn.Conn(); conn.IsClosed() {
		// pgx would let it wait for the answer of a server that was not told to stop, and may still try to tell it.
		_ = conn.PgConn().Conn().Close()
	} else {
		sessionOf(conn.PgConn()).commits.Store(false)
	}
	switch {
	case err != nil:
		s.rollback(ctx, r.conn, r.reset)
		return
	case r.dirty:
		_ = r.conn.Conn().Close(ctx)
	case r.reset.apart:
		s.clean(ctx, r.conn, "")
	}
	r.conn.Release()
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

// endTransaction ends what is left of a failed transaction; where that fails, closing the connection makes the server do the
// same.
func endTransaction(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		_ = conn.Close(ctx)
	}
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
		endTransaction(ctx, conn.Conn())
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
	if r.attempt.Via == txn.ViaOutbox {
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
	if session := sessionOf(r.conn.Conn().PgConn()); session.pooled {
		return fmt.Sprintf(`SELECT set_config('statement_timeout', '%d', true)`, max(timeout.Milliseconds(), 1)) + session.local, true
	}
	if timeout == statementTimeout {
		return "", false
	}
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d`, max(timeout.Milliseconds(), 1)), true
}

// errNotCommitted: COMMIT was answered with ROLLBACK, because the transaction had failed before.
var errNotCommitted = errors.New("COMMIT of a failed transaction")

// sendingCommit: from now on COMMIT may be at work, which nothing of ours may cancel.
func (r *run) sendingCommit() {
	takeUnconfirmed(r.conn.Conn())
	sessionOf(r.conn.Conn().PgConn()).commits.Store(true)
	r.commitSent = true
}

// committed judges the reply to COMMIT.
func (r *run) committed(tag pgconn.CommandTag, err error) error {
	switch {
	case err != nil:
		return err
	case tag.String() != "COMMIT":
		return errNotCommitted
	case takeUnconfirmed(r.conn.Conn()):
		return errUnconfirmed
	}
	return nil
}

// scanKept reads what the statement of SQL.Keep returns.
func scanKept(row pgx.Row) (result json.RawMessage, decidedAt time.Time, err error) {
	err = row.Scan((*[]byte)(&result), &decidedAt)
	return result, decidedAt.UTC(), err
}
