package localtx

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pgurl"
)

const (
	// defaultMaxConns is the pool's size unless the URL names another (pool_max_conns).
	defaultMaxConns = 32
	// statementTimeout is what every connection starts with; kinds with another timeout set their own.
	statementTimeout = 5 * time.Second
	// pingAfter is how long a connection may be idle before it is asked for a sign of life: it may have been cut off
	// without a word.
	pingAfter   = 5 * time.Second
	pingTimeout = time.Second
)

// NewPool returns a pool for the URL, with the limits that the flow relies on. It does not connect yet.
func NewPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = defaultMaxConns
	}
	config.MaxConnIdleTime = 5 * time.Minute
	config.MaxConnLifetime = time.Hour
	config.MaxConnLifetimeJitter = 10 * time.Minute
	config.ShouldPing = shouldPing
	config.PingTimeout = pingTimeout
	config.AfterConnect = makeDurable
	config.ConnConfig.ConnectTimeout = 3 * time.Second
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = "txsvc"
	params["timezone"] = "UTC"
	params["statement_timeout"] = fmt.Sprint(statementTimeout.Milliseconds())
	params["idle_in_transaction_session_timeout"] = "60000"
	guard := &sessions{}
	guard.guard(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	guard.keep(pool)
	return pool, err
}

// shouldPing lets connections pass without a ping that were used a moment ago and on which nothing has arrived since. So
// a server that went away is seen before anything is sent, while it is still certain that nothing was changed.
func shouldPing(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > pingAfter || !silent(p.Conn.PgConn().Conn())
}

// makeDurable keeps COMMIT waiting for the disk, whatever the database's or the user's default is: a message must not be
// visible whose transaction a crash of the server takes back.
func makeDurable(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`)
	return err
}
