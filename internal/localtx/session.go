package localtx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/txn"
)

// What a database says that takes no writes, in words that may be shown to anybody.
const (
	saysStandby  = "the database server is a standby, which takes no writes"
	saysReadOnly = "the database is read-only"
)

const (
	// readOnlyState is the SQLSTATE of a statement that writes, in a transaction that may not.
	readOnlyState = "25006"
	// resetEvery bounds how often the idle sessions are closed: a kind whose own SQL makes its transactions read-only
	// would otherwise do it with every request.
	resetEvery = 500 * time.Millisecond
	// askAgain is how long the answer of a server that takes no writes is believed without asking it once more.
	askAgain = 250 * time.Millisecond
)

// sessions keeps out of a pool what cannot serve a writer: sessions of a standby or of a read-only database, those that were
// told so by PostgreSQL, and those of another server than the newest session's. A session keeps what it began with, so
// one that is wrong would stay wrong until it is closed.
type sessions struct {
	mu      sync.Mutex
	pool    *pgxpool.Pool // nil until it is made
	server  string        // that of the newest session
	reset   time.Time
	refused error // what the last new session was refused for
	at      time.Time
}

// session is what is known of one session.
type session struct {
	stale bool   // it is not to be used again
	own   string // what gives it back its own settings after a reset: further columns of a query
	// commits: COMMIT of a local transaction may have been sent. From then on nothing of ours may cancel what it does.
	commits atomic.Bool
	// unconfirmed: a COMMIT ended without the confirmation of the standbys that it waited for.
	unconfirmed bool
}

const sessionKey = "txsvc"

func sessionOf(conn *pgconn.PgConn) *session {
	s, ok := conn.CustomData()[sessionKey].(*session)
	if !ok {
		s = &session{}
		conn.CustomData()[sessionKey] = s
	}
	return s
}

// guard makes the pool of the configuration keep such sessions out.
func (g *sessions) guard(config *pgxpool.Config) {
	config.BeforeConnect = g.beforeConnect
	config.PrepareConn = usable
	conn := &config.ConnConfig.Config
	asked := conn.ValidateConnect // what the URL asks for with target_session_attrs
	conn.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if asked != nil {
			if err := asked(ctx, conn); err != nil {
				return err
			}
		}
		return g.validate(ctx, conn)
	}
	onError := conn.OnPgError
	conn.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == readOnlyState {
			sessionOf(conn).stale = true
			g.closeSometimes()
		}
		return onError(conn, err)
	}
}

func (g *sessions) keep(pool *pgxpool.Pool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pool = pool
}

// beforeConnect spares a server that has just refused, and the caller the wait.
func (g *sessions) beforeConnect(_ context.Context, config *pgx.ConnConfig) error {
	keepCommits(config)
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < askAgain {
		return g.refused
	}
	return nil
}

// usable tells without asking: since version 14, PostgreSQL reports both settings when they change.
func usable(_ context.Context, conn *pgx.Conn) (bool, error) {
	c := conn.PgConn()
	return !sessionOf(c).stale && c.ParameterStatus("in_hot_standby") != "on" && c.ParameterStatus("default_transaction_read_only") != "on", nil
}

// asks is what a new session is asked. The time of the start tells servers apart, whatever stands between them and here.
const asks = `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, pg_postmaster_start_time()`

func (g *sessions) validate(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, asks).ReadAll()
	if err != nil {
		return fmt.Errorf("asking a new session: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("asking a new session: no answer")
	}
	row := results[0].Rows[0]
	switch {
	case string(row[0]) == "t":
		return g.refuse(saysStandby)
	case string(row[1]) == "t":
		return g.refuse(saysReadOnly)
	}
	g.mu.Lock()
	changed := g.server != "" && g.server != string(row[2])
	g.server, g.refused = string(row[2]), nil
	g.mu.Unlock()
	if changed {
		g.closeAll()
	}
	return nil
}

func (g *sessions) refuse(says string) error {
	err := txn.DatabaseUnavailable(nil, "%s", says)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused, g.at = err, time.Now()
	return err
}

// closeSometimes is closeAll, but for sessions that fail one after the other.
func (g *sessions) closeSometimes() {
	g.mu.Lock()
	recent := time.Since(g.reset) < resetEvery
	g.mu.Unlock()
	if !recent {
		g.closeAll()
	}
}

// closeAll closes what is idle, and what is in use as soon as it is given back.
func (g *sessions) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reset = time.Now()
	if g.pool != nil {
		g.pool.Reset()
	}
}
