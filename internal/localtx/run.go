package localtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
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
	maxRuns       = 5 // of one local transaction, on serialization failures
)

// Run runs the local transaction of the attempt; see txn.Store.
func (s *Store) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	program, ok := s.programs[a.Kind.Name]
	if !ok {
		return failed(&txn.Error{Code: txn.CodeInternal, Detail: "the kind has no local transaction"})
	}
	deadline := time.Now().Add(a.Kind.Timeout)
	reopen := false
	for run := 1; ; run++ {
		o, again := s.runOnce(ctx, a, program, reopen, deadline)
		if again == runDone {
			return o
		}
		if run == maxRuns || time.Now().After(deadline) {
			return failed(unavailable(o.Err, "the local transaction kept failing to serialize; nothing was changed"))
		}
		reopen = again == runReopen
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
	return &txn.Error{Code: txn.CodeDatabaseUnavailable, Detail: detail, RetryAfter: 2 * time.Second, Cause: cause}
}

func (s *Store) runOnce(ctx context.Context, a *txn.Attempt, p Program, reopen bool, deadline time.Time) (txn.Outcome, again) {
	conn, err := s.acquire(ctx, deadline)
	if err != nil {
		return failed(unavailable(err, "the database did not answer; nothing was changed")), runDone
	}
	r := &run{store: s, attempt: a, conn: conn, reopen: reopen, deadline: deadline}
	hang, cancel := context.WithDeadline(ctx, deadline.Add(hangTimeout))
	err = r.do(hang, p)
	cancel()
	if err == nil {
		conn.Release()
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: r.row, Lease: r.lease}, runDone
	}
	s.rollback(ctx, conn)
	return s.judge(ctx, r, err)
}

// acquire returns a connection that is known to be alive a moment ago, so that a server that went away is seen before
// anything is sent, when it is still certain that nothing was changed.
func (s *Store) acquire(ctx context.Context, deadline time.Time) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("acquiring a connection: %w", err)
		}
		if conn.Conn().PgConn().CheckConn() == nil {
			return conn, nil
		}
		_ = conn.Conn().Close(ctx)
		conn.Release()
	}
}

// rollback ends what is left of a failed local transaction and gives the connection back; where that fails, closing the
// connection makes the server do the same.
func (s *Store) rollback(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		_ = conn.Conn().Close(ctx)
	}
}

// run is one run of a local transaction.
type run struct {
	store    *Store
	attempt  *txn.Attempt
	conn     *pgxpool.Conn
	reopen   bool
	deadline time.Time

	row   *txn.Transaction
	lease txn.Lease
	// What went wrong, for judge.
	commitSent bool // COMMIT left with what failed
	committing bool // the error is that of COMMIT itself
	atRow      bool // the error is that of writing the row
}

// errFenced: the row that is to be replaced fences this half message, or was decided meanwhile.
var errFenced = errors.New("the id's row cannot be replaced")

func (r *run) do(ctx context.Context, p Program) error {
	a := r.attempt
	in := Input{
		ID: a.Request.ID, ShardKey: a.Request.ShardKey, Payload: a.Request.Payload,
		LocalArg: a.Request.LocalArg, SelectorArg: a.Request.SelectorArg,
	}
	switch p := p.(type) {
	case Planner:
		plan, err := planSafely(p, in)
		if err != nil {
			return err
		}
		return r.pipeline(ctx, plan.Statements, plan.Result, false)
	case SQL:
		return r.pipeline(ctx, p.bind(in), nil, p.Keep != "")
	case Handler:
		return r.step(ctx, func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) { return handleSafely(ctx, p, tx, in) })
	default:
		return fmt.Errorf("a program of type %T cannot be run", p)
	}
}

func planSafely(p Planner, in Input) (plan Plan, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return p.Plan(in)
}

func handleSafely(ctx context.Context, h Handler, tx pgx.Tx, in Input) (raw json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", v, debug.Stack())
		}
	}()
	result, err := h.Handle(ctx, guardedTx{tx}, in)
	if err != nil || result == nil {
		return nil, err
	}
	return json.Marshal(result)
}

// guardedTx keeps the end of the transaction out of a handler's reach.
type guardedTx struct{ pgx.Tx }

var errGuarded = errors.New("a local transaction is committed or rolled back by the service, not by its handler")

func (guardedTx) Commit(context.Context) error   { return errGuarded }
func (guardedTx) Rollback(context.Context) error { return errGuarded }

// prepare builds the row and starts the lease.
func (r *run) prepare(result json.RawMessage) ([]any, error) {
	now := time.Now()
	r.row = rowOf(r.attempt, txn.StateCommitted, now)
	r.row.Result = result
	r.startLease(now)
	return rowArgs(r.attempt, r.row, r.store.timing.Lease())
}

func (r *run) startLease(now time.Time) {
	r.lease = txn.Lease{ID: r.attempt.Request.ID, Epoch: 1, WriteBefore: now.Add(r.store.timing.WriteWithin)}
}

// timeoutStatement bounds the statements on the server's side, where a cancelled one is certain to have done nothing.
func (r *run) timeoutStatement() (string, bool) {
	left := time.Until(r.deadline).Round(time.Millisecond)
	if left >= statementTimeout-100*time.Millisecond && left <= statementTimeout {
		return "", false
	}
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d`, max(left.Milliseconds(), 1)), true
}

// pipeline runs statements that are known beforehand in one round trip. When kept is true the last of them returns the
// result, which it also wrote into the row.
func (r *run) pipeline(ctx context.Context, statements []Statement, result json.RawMessage, kept bool) error {
	if r.reopen || failpoint.Armed("local") {
		return r.step(ctx, func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
			return execute(ctx, tx, statements, result, kept)
		})
	}
	args, err := r.prepare(result)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	before := 1
	if statement, ok := r.timeoutStatement(); ok {
		batch.Queue(statement)
		before++
	}
	batch.Queue(insertRow, args...)
	for _, s := range statements {
		batch.Queue(s.SQL, s.Args...)
	}
	batch.Queue(`COMMIT`)
	r.commitSent = true
	results := r.conn.SendBatch(ctx, batch)
	err = r.read(results, before, len(statements), kept)
	if closeErr := results.Close(); err == nil && closeErr != nil && !r.committing {
		err = closeErr
	}
	return err
}

// read takes the replies in order: those of BEGIN and its like, of the row, of the statements, of COMMIT.
func (r *run) read(results pgx.BatchResults, before, statements int, kept bool) error {
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if _, err := results.Exec(); err != nil {
		r.atRow = true
		return err
	}
	for i := range statements {
		if kept && i == statements-1 {
			if err := scanResult(results.QueryRow(), &r.row.Result); err != nil {
				return err
			}
			continue
		}
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	r.committing = true
	return committed(results.Exec())
}

func scanResult(row pgx.Row, into *json.RawMessage) error {
	var text *string
	if err := row.Scan(&text); err != nil {
		return err
	}
	if text != nil {
		*into = json.RawMessage(*text)
	}
	return nil
}

// errNotCommitted: COMMIT was answered with ROLLBACK, because the transaction had failed before.
var errNotCommitted = errors.New("COMMIT of a failed transaction")

func committed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.String() != "COMMIT" {
		return errNotCommitted
	}
	return err
}

// step runs a local transaction in several round trips.
func (r *run) step(ctx context.Context, body func(context.Context, pgx.Tx) (json.RawMessage, error)) error {
	tx, err := r.conn.Begin(ctx)
	if err != nil {
		return err
	}
	if statement, ok := r.timeoutStatement(); ok {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	args, err := r.prepare(nil)
	if err != nil {
		return err
	}
	if err := r.writeRow(ctx, tx, args); err != nil {
		return err
	}
	result, err := body(ctx, tx)
	if err != nil {
		return err
	}
	failpoint.Hit("local")
	return r.finish(ctx, result)
}

func (r *run) writeRow(ctx context.Context, tx pgx.Tx, args []any) error {
	statement := insertRow
	if r.reopen {
		statement = reopenRow
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

func execute(ctx context.Context, tx pgx.Tx, statements []Statement, result json.RawMessage, kept bool) (json.RawMessage, error) {
	for i, s := range statements {
		if kept && i == len(statements)-1 {
			return result, scanResult(tx.QueryRow(ctx, s.SQL, s.Args...), &result)
		}
		if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// finish stores the result, starts the lease anew (the body may have taken long), and commits, in one round trip.
func (r *run) finish(ctx context.Context, result json.RawMessage) error {
	now := time.Now()
	r.startLease(now)
	r.row.Result, r.row.DecidedAt = result, stamp(now)
	batch := &pgx.Batch{}
	batch.Queue(`UPDATE txsvc.transactions SET result = $2, decided_at = $3, lease_until = clock_timestamp() + $4::interval, lease_epoch = 1
		WHERE id = $1`, r.row.ID, jsonArg(result), r.row.DecidedAt, r.store.timing.Lease())
	batch.Queue(`COMMIT`)
	r.commitSent = true
	results := r.conn.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		r.committing = true
		err = committed(results.Exec())
	}
	if closeErr := results.Close(); err == nil && closeErr != nil && !r.committing {
		err = closeErr
	}
	return err
}
