package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/localtx/residue"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/postgres/leases"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/txn"
)

// store is PostgreSQL, wired: the flow, the deliveries, the router and /readyz each take of it what they need.
type store struct {
	*postgres.DB
	*rows.Table
	*rows.Marks
	*leases.Claims
	*leases.Leases
	*producers.Producers
	*accepted.Lists
	*localtx.Runner

	residue *residue.Watcher
}

// openStore returns the store of the URL. The bodies of messages of the kinds in retains stay in their rows.
func openStore(ctx context.Context, url string, programs map[string]task.Program, retains []string, timing txn.Timing, log *slog.Logger) (*store, error) {
	db, err := openDatabase(ctx, url, timing, log)
	if err != nil {
		return nil, err
	}
	self := producers.NewSelf()
	known := producers.New(db, self, log)
	marks := rows.NewMarks(db, self, retains, log)
	table := rows.New(db, marks, known)
	watcher := residue.New(db, log)
	return &store{
		DB: db, Table: table, Marks: marks, Claims: leases.NewClaims(db), Leases: leases.New(db, self), Producers: known,
		Lists: accepted.New(db), Runner: localtx.New(db, table, self, watcher, programs), residue: watcher,
	}, nil
}

// Close ends the local transactions that are left, and then all connections.
func (s *store) Close() {
	s.Runner.Close()
	s.DB.Close()
}

func openDatabase(ctx context.Context, url string, timing txn.Timing, log *slog.Logger) (*postgres.DB, error) {
	db, err := postgres.Open(ctx, url, timing, log)
	if err != nil {
		return nil, fmt.Errorf("TXSVC_DATABASE_URL: %w", err)
	}
	return db, nil
}
