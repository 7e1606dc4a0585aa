package localtx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

	probing sync.Mutex // one looks for a pooler at a time
	way     way
}

// way is how sessions are reached.
type way int

const (
	wayUnknown way = iota
	wayDirect
	wayPooled // a pooler gives each transaction another session of the server, or may do so
)

// session is what is known of one session.
type session struct {
	stale bool   // it is not to be used again
	own   string // what gives it back its own settings after a reset: further columns of a query
	// commits: COMMIT of a local transaction may have been sent. From then on nothing of ours may cancel what it does.
	commits atomic.Bool
	// unconfirmed: a COMMIT ended without the confirmation of the standbys that it waited for.
	unconfirmed bool
	// pooled: each transaction may have another session of the server, so nothing can be kept in it.
	pooled bool
	local  string // what gives a transaction the settings that the session cannot keep, as own
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

// beforeConnect spares a server that has just refused, and the caller the wait; and makes ready for a pooler.
func (g *sessions) beforeConnect(ctx context.Context, config *pgx.ConnConfig) error {
	g.mu.Lock()
	recent, refused := time.Since(g.at) < askAgain, g.refused
	g.mu.Unlock()
	if recent && refused != nil {
		return refused
	}
	way, err := g.find(ctx, config)
	if way == wayPooled {
		throughPooler(config)
	}
	keepCommits(config)
	return err
}

// throughPooler makes a connection ask for nothing that lasts longer than a transaction: PgBouncer refuses settings that it does not
// know when a session begins, and hands a prepared statement to the next client, or loses it.
func throughPooler(config *pgx.ConnConfig) {
	delete(config.RuntimeParams, "statement_timeout")
	delete(config.RuntimeParams, "idle_in_transaction_session_timeout")
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.StatementCacheCapacity = 0
}

const saysStatements = "the connection pooler gives each statement another session: the service needs pool_mode = transaction (or session)"

// find finds out once whether there is a pooler on the way.
func (g *sessions) find(ctx context.Context, config *pgx.ConnConfig) (way, error) {
	g.probing.Lock()
	defer g.probing.Unlock()
	g.mu.Lock()
	known := g.way
	g.mu.Unlock()
	if known != wayUnknown {
		return known, nil
	}
	probe := config.Copy()
	throughPooler(probe)
	probe.ValidateConnect, probe.OnPgError = nil, nil
	conn, err := pgconn.ConnectConfig(ctx, &probe.Config)
	if err != nil {
		return wayUnknown, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	pooled, err := throughOther(ctx, conn)
	found := wayDirect
	switch {
	case err != nil:
		return wayUnknown, fmt.Errorf("looking for a connection pooler: %w", err)
	case pooled:
		found = wayPooled
		if _, err := conn.Exec(ctx, `BEGIN`).ReadAll(); err != nil { // only a pooler of statements refuses it
			return wayUnknown, txn.DatabaseUnavailable(err, "%s", saysStatements)
		}
	}
	g.learn(found)
	return found, nil
}

func (g *sessions) learn(w way) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = w
}

// throughOther says whether the server's session is another one than that which the connection was told of at its beginning.
func throughOther(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return false, errors.Join(err, errors.New("no answer"))
	}
	return string(results[0].Rows[0][0]) != strconv.FormatUint(uint64(conn.PID()), 10), nil
}

// dial opens a connection like those of the pool, beside it.
func dial(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	config := pool.Config()
	if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}

// usable tells without asking: since version 14, PostgreSQL reports both settings when they change.
func usable(_ context.Context, conn *pgx.Conn) (bool, error) {
	c := conn.PgConn()
	return !sessionOf(c).stale && c.ParameterStatus("in_hot_standby") != "on" && c.ParameterStatus("default_transaction_read_only") != "on", nil
}

// asks is what a new session is asked. The time of the start tells servers apart, whatever stands between them and here.
const asks = `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, pg_postmaster_start_time(), pg_backend_pid()`

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
	direct := string(row[3]) == strconv.FormatUint(uint64(conn.PID()), 10)
	g.mu.Lock()
	if !direct && g.way != wayPooled { // it has come since
		g.way = wayUnknown
		g.mu.Unlock()
		return txn.DatabaseUnavailable(nil, "the database is behind a connection pooler now")
	}
	sessionOf(conn).pooled = g.way == wayPooled
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
