package sessions

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pgurl"
	"github.com/txsvc/txsvc/internal/txn"
)

// defaultMaxConns is the pool's size unless the URL names another (pool_max_conns).
const defaultMaxConns = 32

// NewPool returns a pool for the URL, with the limits that local transactions rely on. It does not connect yet.
func NewPool(ctx context.Context, url string, timing txn.Timing) (*pgxpool.Pool, error) {
	config, err := pgurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = defaultMaxConns
	}
	config.MaxConnIdleTime = maxConnIdle
	config.MaxConnLifetime = maxConnLife
	config.MaxConnLifetimeJitter = maxConnLifeJitter
	// A connection that was used a moment ago, and on which nothing has arrived since, passes without a ping. So a server that
	// went away is noticed before anything is sent, while it is still certain that nothing was changed.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > timing.PingAfter || !Silent(p.Conn.PgConn().Conn())
	}
	config.PingTimeout = timing.PingWithin
	config.AfterConnect = prepareSession
	config.ConnConfig.OnNotice = noteUnconfirmed
	config.ConnConfig.ConnectTimeout = timing.ConnectWithin
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = "txsvc"
	params["timezone"] = "UTC"
	params["statement_timeout"] = fmt.Sprint(timing.StatementWithin.Milliseconds())
	params["idle_in_transaction_session_timeout"] = fmt.Sprint(timing.IdleInTransaction.Milliseconds())
	guard := &guard{}
	guard.install(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	guard.watch(pool)
	return pool, err
}

// Dial opens a connection like those of the pool, beside it.
func Dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}

// Connect is Dial for a connection that writes: its session is prepared like those of the pool.
func Connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	conn, err := Dial(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := prepareSession(ctx, conn); err != nil {
		HangUp(ctx, conn)
		return nil, err
	}
	return conn, nil
}

// HangUp closes a connection, also when ctx is done.
func HangUp(ctx context.Context, conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
