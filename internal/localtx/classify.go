package localtx

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// verdict says what an error of a local transaction means.
type verdict int

const (
	verdictUnknown  verdict = iota // COMMIT may have happened
	verdictTaken                   // the id has a row already
	verdictRejected                // the business refused
	verdictMisfit                  // a value did not fit what PostgreSQL was to make of it; certainly rolled back
	verdictRetry                   // serialization failure or deadlock: run it again
	verdictTimeout                 // it took too long, and is certainly rolled back
	verdictFailed                  // certainly rolled back
)

func (r *run) verdict(err error) verdict {
	pgErr, reported := errors.AsType[*pgconn.PgError](err)
	_, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err)
	switch {
	case r.ended, errors.Is(err, errUnconfirmed):
		return verdictUnknown
	case reported && r.committing:
		return classifyCommit(pgErr)
	case reported && r.atRow:
		return classifyRow(pgErr)
	case reported:
		return classify(pgErr)
	case !r.commitSent, unsent, pgconn.SafeToRetry(err), errors.Is(err, errNotCommitted):
		if r.overdue {
			return verdictTimeout
		}
		return verdictFailed
	default:
		return verdictUnknown
	}
}

// unencodable: an argument does not have the type that its statement wants. pgx closes the connection then.
func unencodable(err error) bool {
	_, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err)
	_, network := errors.AsType[net.Error](err)
	return unsent && !network && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// classify is for what PostgreSQL reports for a statement before COMMIT. It is certain: the server skips everything up
// to Sync, COMMIT included.
func classify(e *pgconn.PgError) verdict {
	switch {
	case e.Code == "40001" || e.Code == "40P01" || staleStatement(e):
		return verdictRetry
	case refusal(e):
		return verdictRejected
	case e.Code == "57014" || e.Code == "55P03":
		return verdictTimeout
	case misfit(e):
		return verdictMisfit
	default:
		return verdictFailed
	}
}

// classifyRow is for what PostgreSQL reports for the row, which no business rule is about.
func classifyRow(e *pgconn.PgError) verdict {
	if e.Code == "23505" && ownRow(e) {
		return verdictTaken
	}
	if v := classify(e); v != verdictRejected && v != verdictMisfit {
		return v
	}
	return verdictFailed
}

// classifyCommit is for what PostgreSQL reports for COMMIT itself. An ERROR, of a deferred constraint or trigger for
// example, comes before the commit record: after it, xact.c lets nothing fail but by PANIC. Anything else may come after
// it, for example the end of a session that waited for a standby.
func classifyCommit(e *pgconn.PgError) verdict {
	if e.SeverityUnlocalized != "ERROR" || outage(e) {
		return verdictUnknown
	}
	return classify(e)
}

func ownRow(e *pgconn.PgError) bool { return e.SchemaName == "txsvc" && e.TableName == "transactions" }

// refusal tells what the business decided: a RAISE, whatever SQLSTATE it gives, and a constraint that has a name. A row for
// which there is no partition has SQLSTATE 23514 as well, and names none.
func refusal(e *pgconn.PgError) bool {
	if e.Routine == "exec_stmt_raise" || e.Code == "P0001" {
		return e.Code != resultRefused
	}
	catalog := e.SchemaName == "pg_catalog" // two sessions create the same object
	return strings.HasPrefix(e.Code, "23") && e.ConstraintName != "" && !ownRow(e) && !catalog
}

// staleStatement: a prepared statement of this connection was overtaken by a change of the schema; pgx prepares it anew.
func staleStatement(e *pgconn.PgError) bool {
	return e.Code == "26000" || e.Code == "0A000" && e.Routine == "RevalidateCachedQuery"
}

// outage: the database, and not the statement, is the reason: connection (class 08), resources (53), operator (57),
// system (58), a server that is (no longer) the primary, a time limit of the session.
func outage(e *pgconn.PgError) bool {
	switch e.Code[:min(2, len(e.Code))] {
	case "08", "53", "57", "58":
		return true
	}
	return e.Code == readOnlyState || e.Code == "25P03" || e.Code == "25P04"
}

// rejectionOf keeps what a client may see: the message names tables, columns and constraints, while values are in
// PostgreSQL's DETAIL, which is left out.
func rejectionOf(e *pgconn.PgError) *txn.Rejection {
	return &txn.Rejection{Message: e.Message, SQLState: e.Code, Constraint: e.ConstraintName}
}
