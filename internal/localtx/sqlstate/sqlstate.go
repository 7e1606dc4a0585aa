// Package sqlstate says what the errors mean that PostgreSQL reports about a local transaction, and which of their words a
// client may see.
package sqlstate

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// resultRefused is the SQLSTATE with which the function txsvc.refuse_result ends a transaction.
const resultRefused = "TX013"

// Taken says that the id of a transaction has a row already.
func Taken(e *pgconn.PgError) bool { return e.Code == "23505" && ownRow(e) }

func ownRow(e *pgconn.PgError) bool { return e.SchemaName == "txsvc" && e.TableName == "transactions" }

// Again says that the transaction may succeed when it is run once more: after a serialization failure or a deadlock, and
// when a prepared statement of the connection was overtaken by a change of the schema, because pgx then prepares it anew.
func Again(e *pgconn.PgError) bool {
	stale := e.Code == "26000" || e.Code == "0A000" && e.Routine == "RevalidateCachedQuery"
	return e.Code == "40001" || e.Code == "40P01" || stale
}

// Timeout says that a statement took, or waited for a lock, longer than it may.
func Timeout(e *pgconn.PgError) bool { return e.Code == "57014" || e.Code == "55P03" }

// Refusal says that the business decided: a RAISE, whatever SQLSTATE it gives, or a constraint that has a name. A row for
// which there is no partition has SQLSTATE 23514 as well, but names no constraint.
func Refusal(e *pgconn.PgError) bool {
	if e.Routine == "exec_stmt_raise" || e.Code == "P0001" {
		return e.Code != resultRefused
	}
	catalog := e.SchemaName == "pg_catalog" // two sessions create the same object
	return strings.HasPrefix(e.Code, "23") && e.ConstraintName != "" && !ownRow(e) && !catalog
}

// Rejection is what a client may see of a refusal: the message names tables, columns and constraints. Values are in
// PostgreSQL's DETAIL, which is left out.
func Rejection(e *pgconn.PgError) *txn.Rejection {
	return &txn.Rejection{Message: e.Message, SQLState: e.Code, Constraint: e.ConstraintName}
}

// Outage says that not the statement but the database is the reason: its connection (class 08), resources (53), operator
// (57) or system (58), a server that is not the primary (any more), or a time limit of the session.
func Outage(e *pgconn.PgError) bool {
	switch e.Code[:min(2, len(e.Code))] {
	case "08", "53", "57", "58":
		return true
	}
	return sessions.IsReadOnly(e) || e.Code == "25P03" || e.Code == "25P04"
}

// CommitFailed says of an error of COMMIT itself that the transaction is certainly rolled back. An ERROR, of a deferred
// constraint or trigger for example, comes before the commit record: after that record, xact.c lets nothing fail but by
// PANIC. Any other error may come after it, for example when a session ends that waited for a standby.
func CommitFailed(e *pgconn.PgError) bool { return e.SeverityUnlocalized == "ERROR" && !Outage(e) }
