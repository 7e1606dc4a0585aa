package localtx

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	detailNoAnswer = "the database did not answer; nothing was changed"
	detailAllInUse = "all connections for local transactions were in use for longer than the kind's timeout; nothing was changed"
	detailBroke    = "the database failed; nothing was changed"
	detailFailed   = "the local transaction failed; nothing was changed"
	detailInLine   = "an earlier transaction of this topic and shard key takes longer than the kind's timeout; nothing was changed"
	detailPooled   = "ordered kinds at an isolation level above read committed need a direct connection to the database, not a connection pooler; nothing was changed"
	detailTimeout  = "the local transaction took longer than its timeout; nothing was changed"
)

// judge turns the error of a run into an outcome. The run's transaction was rolled back as far as it could be.
func (s *Store) judge(ctx context.Context, r *run, err error) (txn.Outcome, again) {
	verdict := r.verdict(err)
	if verdict == verdictUnknown {
		return s.settle(ctx, r, err), runDone
	}
	if rejection, ok := errors.AsType[*txn.Rejection](err); ok {
		return s.refuse(ctx, r.attempt, rejection), runDone
	}
	if e, ok := errors.AsType[*txn.Error](err); ok {
		return failed(e), runDone
	}
	if errors.Is(err, errFenced) {
		return s.replaced(ctx, r.attempt), runDone
	}
	switch verdict {
	case verdictTaken:
		return s.taken(ctx, r.attempt)
	case verdictRetry:
		return failed(err), runAgain
	case verdictRejected:
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		return s.refuse(ctx, r.attempt, rejectionOf(pgErr)), runDone
	case verdictMisfit:
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		return failed(misfitOf(pgErr)), runDone
	case verdictTimeout:
		return failed(timedOut(r, err)), runDone
	default:
		return failed(fault(r, err)), runDone
	}
}

func timedOut(r *run, cause error) *txn.Error {
	if r.atLine {
		return &txn.Error{Code: txn.CodeOverloaded, Detail: detailInLine, RetryAfter: inLineRetry, Cause: cause}
	}
	if r.atRow {
		return &txn.Error{Code: txn.CodeConflict, Detail: "a request with the same id is still running", Cause: cause}
	}
	return unavailable(cause, detailTimeout)
}

// fault is the answer to an error that is neither the client's nor expected.
func fault(r *run, err error) *txn.Error {
	pgErr, reported := errors.AsType[*pgconn.PgError](err)
	if reported && tablesMissing(pgErr) {
		return unavailable(err, errNoTables.Error()+"; nothing was changed")
	}
	if reported && pgErr.Code == readOnlyState {
		return unavailable(err, saysReadOnly+"; nothing was changed")
	}
	if reported && outage(pgErr) || !reported && r.lost && !unencodable(err) {
		return unavailable(err, detailBroke)
	}
	if reported && strings.HasPrefix(pgErr.Code, "22") {
		err = redacted(pgErr) // also of what a handler wrapped
	}
	return &txn.Error{Code: txn.CodeInternal, Detail: detailFailed, Cause: err}
}

// taken answers for an id that has a row: of another attempt, or one that only fences.
func (s *Store) taken(ctx context.Context, a *txn.Attempt) (txn.Outcome, again) {
	t, err := s.Find(ctx, a.Request.ID)
	switch {
	case err != nil:
		return failed(noAnswer(err)), runDone
	case t.Abandoned:
		return failed(errFenced), runReopen
	default:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}, runDone
	}
}

// replaced answers for a row that could not be replaced.
func (s *Store) replaced(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o, again := s.taken(ctx, a)
	if again == runReopen {
		return failed(unavailable(nil, "the transaction took so long that it was given up; nothing was changed"))
	}
	return o
}

// refuse stores a rejection, so that the same id gets the same answer.
func (s *Store) refuse(ctx context.Context, a *txn.Attempt, rejection *txn.Rejection) txn.Outcome {
	bound, cancel := bounded(ctx)
	defer cancel()
	t := rowOf(a, txn.StateRolledBack, now())
	t.Rejection = rejection
	args, err := rowArgs(a, t, 0)
	if err != nil {
		return failed(err)
	}
	tag, err := s.exec(bound, refuseRow, args...)
	if err != nil {
		return failed(unavailable(err, "the local transaction refused, and the database did not keep its answer; nothing was changed"))
	}
	if tag.RowsAffected() == 0 {
		o, _ := s.taken(ctx, a)
		return o
	}
	return txn.Outcome{Kind: txn.OutcomeRejected, Transaction: t}
}

// settle tries to find out at once whether a transaction whose COMMIT was not answered did commit.
func (s *Store) settle(ctx context.Context, r *run, cause error) txn.Outcome {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	verdict, t, err := s.Decide(ctx, r.attempt.Message, r.attempt.Half)
	switch {
	case err != nil || verdict == txn.VerdictUndecided:
		return txn.Outcome{Kind: txn.OutcomeUnknown, Err: cause}
	case verdict == txn.VerdictCommit, verdict == txn.VerdictDelivered: // delivered: by another replica, meanwhile
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: t, Lease: r.lease}
	case !t.Abandoned:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}
	case r.ended:
		return failed(&txn.Error{Code: txn.CodeInternal, Detail: detailFailed, Cause: cause})
	default:
		return failed(unavailable(cause, "the connection to the database broke; nothing was changed"))
	}
}
