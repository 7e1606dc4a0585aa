package localtx

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/localtx/sqlstate"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// ending is how one run of a local transaction ended.
type ending struct {
	kind      endKind
	err       error          // of endFailed: the answer to the client; else the cause
	rejection *txn.Rejection // of endRejected
	// looks: of endFailed, another attempt with the id may have committed meanwhile, and be the cause. Its row comes last, so
	// statements of this one can meet what it has done before they meet the row.
	looks bool
	late  bool // of endFailed: a statement took too long, perhaps because it waited for another attempt with the id
}

type endKind int

const (
	endCommitted endKind = iota
	endUnknown           // COMMIT may have happened
	endWaiting           // COMMIT is at work, and may be so for long
	endTaken             // nothing was changed: the id has a row, which cannot be replaced
	endAgain             // nothing was changed: running it again can help
	endRejected          // nothing was changed: the business refused
	endFailed            // nothing was changed
)

// phase is how far a run has come.
type phase int

const (
	phaseBegin  phase = iota // BEGIN, and its settings
	phaseLine                // the lock of its line
	phaseBody                // the statements of the kind; the last of them may write the row, too
	phaseRow                 // its row, and what comes before COMMIT
	phaseCommit              // COMMIT itself
	phaseEnded               // the program has ended the transaction on its own
)

// failure is how a run failed.
type failure struct {
	err  error
	at   phase // the error is the answer to this
	sent phase // this has left the process; with a pipeline it is ahead of at
	lost bool  // the connection is gone
}

// The errors of the service's own making that end a run.
var (
	errFenced       = errors.New("the id's row cannot be replaced") // it is decided, or fences this half message
	errNotCommitted = errors.New("COMMIT of a failed transaction")  // answered with ROLLBACK
	errOverdue      = errors.New("the server was given up")
	errEnded        = errors.New("the handler ended the transaction: that is for the service to do")
	errOpen         = errors.New("the handler left rows open")
	errLost         = errors.New("the connection to the database broke")
	errAborted      = errors.New("the handler passed over an error of PostgreSQL, which had aborted the transaction")
)

// ending says what became of the transaction, and what the client is told. It is the only place that judges a failed run.
func (f failure) ending() ending {
	e := f.judge()
	e.looks = e.kind == endFailed && f.at >= phaseBody && !f.lost
	return e
}

func (f failure) judge() ending {
	e, reported := errors.AsType[*pgconn.PgError](f.err)
	rejection, rejects := errors.AsType[*txn.Rejection](f.err)
	own, isOwn := errors.AsType[*txn.Error](f.err)
	business := f.at != phaseRow // no business rule is about the service's row
	switch {
	case f.unknown(e):
		return ending{kind: endUnknown, err: f.err}
	case rejects:
		return ending{kind: endRejected, rejection: rejection}
	case isOwn:
		return ending{kind: endFailed, err: own}
	case errors.Is(f.err, errFenced):
		return ending{kind: endTaken, err: f.err}
	case !reported && errors.Is(f.err, errOverdue):
		return ending{kind: endFailed, err: f.timedOut()}
	case !reported:
		return ending{kind: endFailed, err: f.fault(nil)}
	case f.at >= phaseBody && sqlstate.Taken(e):
		return ending{kind: endTaken, err: errFenced}
	case sqlstate.Again(e):
		return ending{kind: endAgain, err: f.err}
	case business && sqlstate.Refusal(e):
		return ending{kind: endRejected, rejection: sqlstate.Rejection(e)}
	case sqlstate.Timeout(e):
		return ending{kind: endFailed, err: f.timedOut(), late: f.at == phaseBody}
	case business && sqlstate.Misfit(e):
		return ending{kind: endFailed, err: sqlstate.MisfitError(e)}
	default:
		return ending{kind: endFailed, err: f.fault(e)}
	}
}

// unknown says whether COMMIT may have happened. An error that PostgreSQL reports for a statement before COMMIT is certain:
// the server skips everything up to Sync, COMMIT included.
func (f failure) unknown(e *pgconn.PgError) bool {
	_, unsent := errors.AsType[pgx.ErrPreprocessingBatch](f.err)
	switch {
	case f.at == phaseEnded, errors.Is(f.err, postgres.ErrUnconfirmed):
		return true
	case e != nil:
		return f.at == phaseCommit && !sqlstate.CommitFailed(e)
	default:
		return f.sent == phaseCommit && !unsent && !pgconn.SafeToRetry(f.err) && !errors.Is(f.err, errNotCommitted)
	}
}

const (
	detailNoAnswer  = "the database did not answer; nothing was changed"
	detailAllInUse  = "all connections for local transactions were in use for longer than the kind's timeout; nothing was changed"
	detailBroke     = "the database failed; nothing was changed"
	detailLost      = "the connection to the database broke; nothing was changed"
	detailFailed    = "the local transaction failed; nothing was changed"
	detailEnded     = "the handler ended the transaction, which only the service may do: what it committed by itself, if anything, will have no message"
	detailInLine    = "an earlier transaction of this topic and shard key takes longer than the kind's timeout; nothing was changed"
	detailPooled    = "ordered kinds at an isolation level above read committed need a direct connection to the database, not a connection pooler; nothing was changed"
	detailTimeout   = "the local transaction took longer than its timeout; nothing was changed"
	detailRunning   = "a request with the same id is still running"
	detailGivenUp   = "the transaction took so long that it was given up; nothing was changed"
	detailNotSerial = "the local transaction kept failing to serialize; nothing was changed"
	detailNotStored = "the local transaction refused, and the database did not keep its answer; nothing was changed"
)

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

func (f failure) timedOut() *txn.Error {
	switch f.at {
	case phaseLine:
		return &txn.Error{Code: txn.CodeOverloaded, Detail: detailInLine, RetryAfter: txn.RetryAfter, Cause: f.err}
	case phaseRow:
		if errors.Is(f.err, errOverdue) {
			return unavailable(f.err, detailTimeout)
		}
		return &txn.Error{Code: txn.CodeConflict, Detail: detailRunning, Cause: f.err}
	default:
		return unavailable(f.err, detailTimeout)
	}
}

// fault is the answer to an error that is neither the client's nor expected; e is PostgreSQL's, where it has reported one.
func (f failure) fault(e *pgconn.PgError) *txn.Error {
	switch {
	case e != nil && postgres.TablesMissing(e):
		return unavailable(f.err, postgres.ErrNoTables.Error()+"; nothing was changed")
	case e != nil && sessions.IsReadOnly(e):
		return unavailable(f.err, sessions.ErrReadOnly.Error()+"; nothing was changed")
	case e != nil && sqlstate.Outage(e), e == nil && f.lost && !unencodable(f.err):
		return unavailable(f.err, detailBroke)
	case e != nil && strings.HasPrefix(e.Code, "22"):
		return &txn.Error{Code: txn.CodeInternal, Detail: detailFailed, Cause: sqlstate.Redacted(e)} // also of what a handler wrapped
	default:
		return &txn.Error{Code: txn.CodeInternal, Detail: detailFailed, Cause: f.err}
	}
}

// unencodable says that an argument does not have the type that its statement wants. pgx closes the connection then.
func unencodable(err error) bool {
	_, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err)
	_, network := errors.AsType[net.Error](err)
	return unsent && !network && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}
