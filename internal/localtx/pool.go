package localtx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pgurl"
	"github.com/txsvc/txsvc/internal/txn"
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
	config.AfterConnect = prepareSession
	config.ConnConfig.OnNotice = noteUnconfirmed
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

// beginSession is the first statement of every session, and tells what it has set.
//
// COMMIT waits for the disk, whatever the database's or the user's default is: a message must not be visible whose
// transaction a crash of the server takes back. And the warning is let through that it did not wait for standbys.
//
// The search path is the user's default in this database without the service's own schema, which comes in by "$user" when
// the user has the schema's name: a kind that says transactions means a table of the business.
const beginSession = `WITH path AS (
	SELECT current_setting('search_path') AS had, coalesce(string_agg(m[1], ', ' ORDER BY n), '') AS has
	FROM regexp_matches(current_setting('search_path'), '("(?:[^"]|"")*"|[^,"\s]+)', 'g') WITH ORDINALITY AS element (m, n)
	WHERE m[1] <> '"txsvc"' AND lower(m[1]) <> 'txsvc' AND NOT (current_user = 'txsvc' AND m[1] IN ('"$user"', '$user')))
SELECT CASE WHEN has <> had THEN set_config('search_path', has, false) END,
	CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END,
	CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', false) END
FROM path`

// notDurable: through a pooler, what the session is told does not last.
const notDurable = "synchronous_commit is off for the service's user, and cannot be set through a connection pooler: ALTER ROLE … SET synchronous_commit = on"

func prepareSession(ctx context.Context, conn *pgx.Conn) error {
	session := sessionOf(conn.PgConn())
	var path, durable, messages *string
	if !session.pooled {
		err := conn.QueryRow(ctx, beginSession).Scan(&path, &durable, &messages)
		session.own = settings(map[string]*string{"search_path": path, "synchronous_commit": durable, "client_min_messages": messages}, false)
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	err = tx.QueryRow(ctx, beginSession).Scan(&path, &durable, &messages)
	if err := errors.Join(err, tx.Rollback(ctx)); err != nil { // the rollback undoes what it has set
		return err
	}
	if durable != nil {
		return txn.DatabaseUnavailable(nil, "%s", notDurable)
	}
	name, zone := "txsvc", "UTC" // which the pooler takes for set
	session.own = settings(map[string]*string{"application_name": &name, "timezone": &zone}, false)
	session.local = settings(map[string]*string{"search_path": path, "client_min_messages": messages}, true)
	return nil
}

// settings are columns of a query that set what is not nil.
func settings(values map[string]*string, local bool) string {
	var sql strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if value := values[name]; value != nil {
			fmt.Fprintf(&sql, `, set_config('%s', '%s', %t)`, name, strings.ReplaceAll(*value, `'`, `''`), local)
		}
	}
	return sql.String()
}
