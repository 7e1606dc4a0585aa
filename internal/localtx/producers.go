package localtx

import (
	"context"
	"fmt"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// registerEvery is how often a process says that it is there; registerRetry when the database has not taken it.
	registerEvery = 10 * time.Minute
	registerRetry = time.Second
	// producersKept is how long a process that is gone is known: brokers do not ask about half messages for as long.
	producersKept = 30 * 24 * time.Hour
)

// Register notes that this process, whose message ids begin with the prefix, works on this database; see OwnHalf.
func (s *Store) Register(ctx context.Context, prefix string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s.producer.Store(&prefix)
	_, err := s.pool.Exec(ctx, `WITH gone AS (DELETE FROM txsvc.producers WHERE seen_at < clock_timestamp() - $2::interval AND prefix <> $1)
		INSERT INTO txsvc.producers (prefix) VALUES ($1) ON CONFLICT (prefix) DO UPDATE SET seen_at = clock_timestamp()`, prefix, producersKept)
	if err != nil {
		return fmt.Errorf("registering this process: %w", err)
	}
	return nil
}

// RunRegistration registers the process again and again until ctx is done: the database may have been away, or have lost it in a
// failover.
func (s *Store) RunRegistration(ctx context.Context, prefix string) {
	for {
		wait := registerEvery
		if err := s.Register(ctx, prefix); err != nil {
			s.log.DebugContext(ctx, "this process is not known to the database; it is tried again", "error", err)
			wait = registerRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// OwnHalf says whether a half message is of a process that works on this database, or a row names it, as with those of the
// version before, which does not register.
func (s *Store) OwnHalf(ctx context.Context, id, uniqKey string) (bool, error) {
	prefix := txn.ProducerOf(uniqKey)
	if own := s.producer.Load(); own != nil && *own == prefix {
		return true, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var known bool
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM txsvc.producers WHERE prefix = $1)
		OR EXISTS (SELECT FROM txsvc.transactions WHERE id = $2 AND (uniq_key = $3 OR $3 = ANY (fenced)))`, prefix, id, uniqKey).Scan(&known)
	if err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return known, nil
}
