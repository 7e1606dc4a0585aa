// Package migrations holds the database schema as embedded, paired, sequential SQL files, and applies them.
//
// There are two sets: core is what the service needs, in the schema txsvc; example holds the tables of the shipped
// kinds, in the schema public, and serves for first steps. Each has its own version table.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/pgurl"
)

//go:embed core/*.sql example/*.sql
var files embed.FS

// Set names one set of migrations.
type Set string

// The sets.
const (
	Core    Set = "core"
	Example Set = "example"
)

// Status is one migration and whether it is applied.
type Status struct {
	Set     Set
	Version int64
	File    string
	Applied bool
}

// Up applies the missing migrations of the sets. Several may call it at once: one works, the others wait for it. It waits
// for a lock on a table only for so long that others can wait behind it, tries again for two minutes, and then says who
// holds the lock.
func Up(ctx context.Context, url string, sets ...Set) error {
	return UpTelling(ctx, url, func(string) {}, sets...)
}

// UpTelling is Up, and calls tell with the reason when it waits.
func UpTelling(ctx context.Context, url string, tell func(string), sets ...Set) error {
	return exclusively(ctx, url, tell, func(db *sql.DB) error {
		if err := leavePath(ctx, db); err != nil {
			return err
		}
		for _, set := range sets {
			provider, err := newProvider(db, set)
			if err != nil {
				return err
			}
			err = patiently(ctx, db, tell, func() error { _, err := provider.Up(ctx); return err })
			if err != nil {
				return fmt.Errorf("applying the %s migrations: %w", set, err)
			}
		}
		return nil
	})
}

// Down takes the newest applied migration of the set back, and calls tell with the reason when it waits. The data of dropped
// tables and columns is lost.
func Down(ctx context.Context, url string, tell func(string), set Set) error {
	return exclusively(ctx, url, tell, func(db *sql.DB) error {
		provider, err := newProvider(db, set)
		if err != nil {
			return err
		}
		err = patiently(ctx, db, tell, func() error { _, err := provider.Down(ctx); return err })
		if errors.Is(err, goose.ErrNoNextVersion) {
			return fmt.Errorf("no %s migration is applied", set)
		}
		if err != nil {
			return fmt.Errorf("taking back a %s migration: %w", set, err)
		}
		return nil
	})
}

// List returns all migrations of the sets, oldest first. It changes nothing: an operator who may only read can call it.
func List(ctx context.Context, url string, sets ...Set) ([]Status, error) {
	db, err := open(url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var list []Status
	for _, set := range sets {
		applied, err := appliedVersions(ctx, db, set)
		if err != nil {
			return nil, fmt.Errorf("reading the status of the %s migrations: %w", set, err)
		}
		provider, err := newProvider(db, set)
		if err != nil {
			return nil, err
		}
		for _, source := range provider.ListSources() {
			list = append(list, Status{Set: set, Version: source.Version, File: source.Path, Applied: applied[source.Version]})
		}
	}
	return list, nil
}

func appliedVersions(ctx context.Context, db *sql.DB, set Set) (map[int64]bool, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, set.table()).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT version_id FROM `+set.table()+` WHERE is_applied`) //nolint:gosec // one of two names
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := make(map[int64]bool)
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		applied[version] = true
	}
	return applied, rows.Err()
}

// table is the table in which goose notes the applied migrations of the set.
func (s Set) table() string { return "txsvc.migrations_" + string(s) }

// open returns a handle for the URL, without the pool's parameters that it may have, and without the time limit for
// statements that the user may have: a large table takes long to change. A connection that is used again has no setting left
// of a migration that failed.
func open(url string) (*sql.DB, error) {
	config, err := pgurl.Parse(url)
	if err != nil {
		return nil, err
	}
	params := config.ConnConfig.RuntimeParams
	params["statement_timeout"] = "0"
	params["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	params["application_name"] = "txsvc migrate"
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(refusePooler), stdlib.OptionResetSession(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `RESET lock_timeout`)
		return err
	})), nil
}

// errPooler: the lock that keeps migrations apart belongs to a session, and so do the limits of their statements.
var errPooler = errors.New("a connection pooler stands before the database: migrate through a direct connection to PostgreSQL")

// refusePooler compares the server's session with the one that the connection was given when it began.
func refusePooler(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooler
	}
	return nil
}

// exclusively calls do while it holds a lock in the database, with the schema of the version tables in place. The lock ends
// with its connection, so nothing that dies leaves it behind. One that waits for it asks again and again: a statement that
// waited would have a snapshot, for whose end CREATE INDEX CONCURRENTLY waits in the one that works.
func exclusively(ctx context.Context, url string, tell func(string), do func(*sql.DB) error) error {
	db, err := open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "08P01" { // PgBouncer takes no settings that it does not know
		err = errPooler
	}
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	defer conn.Close()
	for told, got := false, false; !got; {
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock(7819001)`).Scan(&got); err != nil {
			return fmt.Errorf("waiting for other migrations: %w", err)
		}
		if !got && !told {
			tell("waiting for other migrations of this database to end")
			told = true
		}
		if !got && !pause.For(ctx, askAgain) {
			return fmt.Errorf("waiting for other migrations: %w", ctx.Err())
		}
	}
	if _, err := conn.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS txsvc`); err != nil {
		return fmt.Errorf("preparing the database for migrations: %w", err)
	}
	return do(db)
}

// askAgain is the time between two attempts at the lock that keeps migrations apart.
const askAgain = 100 * time.Millisecond

func newProvider(db *sql.DB, set Set) (*goose.Provider, error) {
	sub, err := fs.Sub(files, string(set))
	if err != nil {
		return nil, err
	}
	store, err := database.NewStore(database.DialectPostgres, set.table())
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider("", db, sub, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("reading the %s migrations: %w", set, err)
	}
	return provider, nil
}
