package leases

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/txn"
)

// Producers knows the processes that work on this database, by the prefix of their message ids. So a check-back about a half
// message of another database is told apart. It is safe for concurrent use.
type Producers struct {
	db   *postgres.DB
	log  *slog.Logger
	self atomic.Pointer[string] // the prefix of this process, once Register was called
}

// NewProducers returns the processes that work on the database.
func NewProducers(db *postgres.DB, log *slog.Logger) *Producers { return &Producers{db: db, log: log} }

// Register notes that this process, whose message ids begin with the prefix, works on this database; see OwnHalf.
func (s *Producers) Register(ctx context.Context, prefix string) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	s.self.Store(&prefix)
	if _, err := s.db.Pool().Exec(ctx, register, prefix, producersKnown); err != nil {
		return fmt.Errorf("registering this process: %w", err)
	}
	return nil
}

// RunRegistration registers the process again and again until ctx is done: the database may have been away, or have lost
// the entry in a failover.
func (s *Producers) RunRegistration(ctx context.Context, prefix string) {
	for {
		next := registerEvery
		if err := s.Register(ctx, prefix); err != nil {
			s.log.DebugContext(ctx, "this process is not known to the database; it is tried again", "error", err)
			next = registerRetry
		}
		if !pause.For(ctx, next) {
			return
		}
	}
}

// OwnHalf says whether a half message is of a process that works on this database. Processes of the version before do not
// register; their half messages are known by the rows that name them.
func (s *Producers) OwnHalf(ctx context.Context, id, uniqKey string) (bool, error) {
	prefix := txn.ProducerOf(uniqKey)
	if self := s.self.Load(); self != nil && *self == prefix {
		return true, nil
	}
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	var known bool
	if err := s.db.Pool().QueryRow(ctx, ownHalf, prefix, id, uniqKey).Scan(&known); err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return known, nil
}
