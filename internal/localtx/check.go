package localtx

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// What keeps the database from being used, in words that may be shown to anybody.
var (
	errNoAnswer     = errors.New("the database does not answer")
	errNoLogin      = errors.New("the database refuses the user's login")
	errNoDatabase   = errors.New("the server has no such database")
	errNoPermission = errors.New("the database does not let the service's user change its tables")
	errNoTables     = errors.New("the service's tables are missing or old: run txsvc migrate up")
)

// Check says whether the database answers, has the table, and lets the service write to it. The error's text holds no address or
// secret.
func (s *Store) Check(ctx context.Context) error {
	// FOR UPDATE asks for what a writer needs: that the transaction may write, and the permission.
	_, err := s.pool.Exec(ctx, `SELECT line, fingerprint FROM txsvc.transactions
		WHERE 'txsvc.refuse_result(integer,integer)'::regprocedure IS NOT NULL LIMIT 0 FOR UPDATE`)
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
	case tablesMissing(pgErr):
		return errNoTables
	case pgErr.Code == readOnlyState:
		return errors.New(saysReadOnly)
	case pgErr.Code == "42501":
		return errNoPermission
	default:
		return errNoAnswer
	}
}

// tablesMissing: the relation, its schema, a column of it or a function is not there.
func tablesMissing(e *pgconn.PgError) bool {
	return (e.Code == "42P01" || e.Code == "42703" || e.Code == "3F000" || e.Code == "42883") && strings.Contains(e.Message, "txsvc")
}
