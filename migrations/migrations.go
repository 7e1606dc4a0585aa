// Package migrations holds the database schema as embedded, paired, sequential SQL files, and applies them. It imports
// no other package of this module.
//
// There are two sets: core is what the service needs, in the schema txsvc; example holds the tables of the shipped
// kinds, in the schema that search_path names, and is for trying things out. Each has its own version table.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose uses
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
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

// Up applies what is missing of the sets, one replica at a time (an advisory lock in the database).
func Up(ctx context.Context, url string, sets ...Set) error {
	return each(ctx, url, sets, func(p *goose.Provider, set Set) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("applying the %s migrations: %w", set, err)
		}
		return nil
	})
}

// Down takes the newest applied migration of the set back. It loses the data of what it drops.
func Down(ctx context.Context, url string, set Set) error {
	return each(ctx, url, []Set{set}, func(p *goose.Provider, set Set) error {
		if _, err := p.Down(ctx); err != nil {
			return fmt.Errorf("taking back a %s migration: %w", set, err)
		}
		return nil
	})
}

// List returns all migrations of the sets, oldest first.
func List(ctx context.Context, url string, sets ...Set) ([]Status, error) {
	var list []Status
	err := each(ctx, url, sets, func(p *goose.Provider, set Set) error {
		statuses, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("reading the status of the %s migrations: %w", set, err)
		}
		for _, s := range statuses {
			list = append(list, Status{Set: set, Version: s.Source.Version, File: s.Source.Path, Applied: s.State == goose.StateApplied})
		}
		return nil
	})
	return list, err
}

func each(ctx context.Context, url string, sets []Set, do func(*goose.Provider, Set) error) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return err
	}
	for _, set := range sets {
		provider, err := newProvider(db, set)
		if err != nil {
			return err
		}
		if err := do(provider, set); err != nil {
			return err
		}
	}
	return nil
}

// createSchema makes the schema that holds the version tables too, before goose looks for them. Two replicas may get
// here at once, and CREATE SCHEMA IF NOT EXISTS does not wait for the other: the lock does.
func createSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `DO $$ BEGIN PERFORM pg_advisory_xact_lock(7819001); CREATE SCHEMA IF NOT EXISTS txsvc; END $$`)
	if err != nil {
		return fmt.Errorf("creating the schema txsvc: %w", err)
	}
	return nil
}

func newProvider(db *sql.DB, set Set) (*goose.Provider, error) {
	sub, err := fs.Sub(files, string(set))
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, err
	}
	store, err := database.NewStore(database.DialectPostgres, "txsvc.migrations_"+string(set))
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider("", db, sub, goose.WithStore(store), goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("reading the %s migrations: %w", set, err)
	}
	return provider, nil
}
