package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres"
)

// Mistake is an objection of PostgreSQL to a statement of a kind.
type Mistake struct {
	Statement int // from 0
	Character int // of the statement's text, from 1; 0 when PostgreSQL names none
	Message   string
}

// Prepare has PostgreSQL read the statements of an SQL kind, as a session of the service does, without running any: names,
// types and grammar are checked; of statements other than queries and changes of rows, the grammar alone. The error is about
// the database, and not about a statement.
func Prepare(ctx context.Context, db *postgres.DB, program SQL) ([]Mistake, error) {
	conn, err := db.Pool().Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	defer conn.Release()
	var mistakes []Mistake
	prepare := func(statement int, text string) error {
		_, err := conn.Conn().PgConn().Prepare(ctx, "", text, nil)
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil:
			return nil
		case !ok || conn.Conn().IsClosed():
			return fmt.Errorf("preparing a statement: %w", err)
		case postgres.TablesMissing(pgErr):
			return postgres.ErrNoTables
		}
		message := pgErr.Message
		if pgErr.Hint != "" {
			message += " (" + pgErr.Hint + ")"
		}
		mistakes = append(mistakes, Mistake{statement, int(pgErr.Position), message})
		return nil
	}
	for n, s := range program.Statements {
		if err := prepare(n, s.Text); err != nil {
			return nil, err
		}
	}
	if len(mistakes) > 0 || program.Last == nil {
		return mistakes, nil
	}
	err = prepare(len(program.Statements)-1, program.Last.Alone()) // the last one again, with the text that the service puts around it
	if len(mistakes) > 0 {
		mistakes[0].Character = 0 // it counts in another text
	}
	return mistakes, err
}
