package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// The reasons for which the database cannot be used. Anybody may see their texts.
var (
	ErrNoTables = errors.New("the service's tables are missing or old: run txsvc migrate up")

	errNoAnswer     = errors.New("the database does not answer")
	errNoLogin      = errors.New("the database refuses the user's login")
	errNoDatabase   = errors.New("the server has no such database")
	errNoPermission = errors.New("the database does not let the service's user change its tables")
)

// queryTables needs, by FOR UPDATE, the same as a writer: the permission, and a transaction that may write. The function
// is the newest part of the schema.
const queryTables = `SELECT line, fingerprint FROM txsvc.transactions
	WHERE 'txsvc.refuse_result(integer,integer)'::regprocedure IS NOT NULL LIMIT 0 FOR UPDATE`

// Check says whether the database answers, has the service's tables, and lets the service write to them. The error's text
// holds no address and no secret.
func (db *DB) Check(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, queryTables)
	if err == nil {
		return nil
	}
	if told, ok := errors.AsType[*txn.Error](err); ok {
		return errors.New(told.Detail)
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return errNoAnswer
	case strings.HasPrefix(pgErr.Code, "28"):
		return errNoLogin
	case pgErr.Code == "3D000":
		return errNoDatabase
	case TablesMissing(pgErr):
		return ErrNoTables
	case sessions.IsReadOnly(pgErr):
		return sessions.ErrReadOnly
	case pgErr.Code == "42501":
		return errNoPermission
	default:
		return errNoAnswer
	}
}

// TablesMissing says whether a statement failed because a table of the service, its schema, a column of it or one of the
// service's functions is not there.
func TablesMissing(e *pgconn.PgError) bool {
	return (e.Code == "42P01" || e.Code == "42703" || e.Code == "3F000" || e.Code == "42883") && strings.Contains(e.Message, "txsvc")
}
