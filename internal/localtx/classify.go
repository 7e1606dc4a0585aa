package localtx

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// verdict says what an error of a local transaction means.
type verdict int

const (
	verdictUnknown  verdict = iota // COMMIT may have happened
	verdictNotSent                 // nothing reached the server
	verdictTaken                   // the id has a row already
	verdictRejected                // a business rule refused
	verdictRetry                   // serialization failure or deadlock: run it again
	verdictTimeout                 // the server cancelled a statement
	verdictFailed                  // certainly rolled back
)

// classify tells the errors of the statements before COMMIT apart. An error that PostgreSQL reported for one of them is
// certain: the server skips everything up to Sync, COMMIT included.
func classify(err error) verdict {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if pgconn.SafeToRetry(err) {
			return verdictNotSent
		}
		return verdictUnknown
	}
	switch {
	case pgErr.Code == "23505" && pgErr.SchemaName == "txsvc" && pgErr.ConstraintName == "transactions_pkey":
		return verdictTaken
	case pgErr.Code == "40001" || pgErr.Code == "40P01", staleStatement(pgErr):
		return verdictRetry
	case pgErr.Code == "57014" || pgErr.Code == "55P03":
		return verdictTimeout
	case businessRefusal(pgErr):
		return verdictRejected
	default:
		return verdictFailed
	}
}

// classifyCommit tells the errors of COMMIT itself apart: what PostgreSQL reports as ERROR from a deferred constraint,
// a deferred trigger or serialization aborted the transaction; anything else may come after it was made durable (for
// example a session that was terminated while it waited for a standby).
func classifyCommit(err error) verdict {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.SeverityUnlocalized != "ERROR" {
		return verdictUnknown
	}
	if v := classify(err); v == verdictRejected || v == verdictRetry {
		return v
	}
	return verdictUnknown
}

// businessRefusal: integrity constraints (class 23), data that does not fit (22), RAISE (P0).
func businessRefusal(e *pgconn.PgError) bool {
	return strings.HasPrefix(e.Code, "23") || strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "P0")
}

// staleStatement: a prepared statement of this connection was overtaken by a change of the schema; pgx prepares it anew.
func staleStatement(e *pgconn.PgError) bool {
	return e.Code == "26000" || e.Code == "0A000" && e.Routine == "RevalidateCachedQuery"
}

// rejectionOf keeps what a client may see: the message names tables, columns and constraints, while values are in
// PostgreSQL's DETAIL, which is left out. Messages of class 22 quote the offending value; they are replaced.
func rejectionOf(e *pgconn.PgError) *txn.Rejection {
	message := e.Message
	if strings.HasPrefix(e.Code, "22") {
		message = "a value does not fit its type or range"
	}
	return &txn.Rejection{Message: message, SQLState: e.Code, Constraint: e.ConstraintName}
}

// isConnectionLoss: the connection ended under a transaction that had not been told to commit.
func isConnectionLoss(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded)
}
