package localtx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/txn"
)

// Store keeps transactions in PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	programs map[string]Program // by kind
	timing   txn.Timing
	log      *slog.Logger
	marker   *marker
}

// defaultMaxConns is the pool's size unless the URL names another (pool_max_conns).
const defaultMaxConns = 32

// statementTimeout is what every connection starts with; kinds with another timeout set their own.
const statementTimeout = 5 * time.Second

// NewPool returns a pool for the URL, with the limits that the flow relies on. It does not connect yet.
func NewPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL is not valid") // pgx's error may quote the password
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = defaultMaxConns
	}
	config.MaxConnIdleTime = 5 * time.Minute
	config.MaxConnLifetime = time.Hour
	config.MaxConnLifetimeJitter = 10 * time.Minute
	config.ConnConfig.ConnectTimeout = 3 * time.Second
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = "txsvc"
	params["timezone"] = "UTC"
	params["statement_timeout"] = fmt.Sprint(statementTimeout.Milliseconds())
	params["idle_in_transaction_session_timeout"] = "60000"
	return pgxpool.NewWithConfig(ctx, config)
}

// New returns a Store. Run has to be running for MarkDelivered to reach the table.
func New(pool *pgxpool.Pool, programs map[string]Program, timing txn.Timing, log *slog.Logger) *Store {
	return &Store{pool: pool, programs: programs, timing: timing, log: log, marker: newMarker(pool, log)}
}

// RunMarker writes the delivered marks in batches until ctx is done, and then writes what is left.
func (s *Store) RunMarker(ctx context.Context) { s.marker.run(ctx) }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Migrated says whether the table is there and readable.
func (s *Store) Migrated(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `SELECT lease_epoch FROM txsvc.transactions LIMIT 0`)
	return err
}

// Find returns the row with the id, or txn.ErrNotFound.
func (s *Store) Find(ctx context.Context, id string) (*txn.Transaction, error) {
	t, err := scanTransaction(s.pool.QueryRow(ctx, `SELECT `+selectColumns+` FROM txsvc.transactions WHERE id = $1`, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, txn.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading transaction %s: %w", id, err)
	}
	s.marker.overlay(t)
	return t, nil
}

// MarkDelivered notes that the message is visible; see txn.Store.
func (s *Store) MarkDelivered(id string, at time.Time) { s.marker.add(id, stamp(at)) }

// Pending counts the committed rows whose message is not known to be visible, and the age of the oldest in seconds.
func (s *Store) Pending(ctx context.Context) (count int64, oldest float64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(decided_at)), 0)::float8
		FROM txsvc.transactions WHERE delivery = 'pending'`).Scan(&count, &oldest)
	if err != nil {
		return 0, 0, fmt.Errorf("counting pending deliveries: %w", err)
	}
	return count, oldest, nil
}
