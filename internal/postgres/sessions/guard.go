package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/txn"
)

// ErrReadOnly is the refusal of a database that takes no writes. Anybody may see its text.
var ErrReadOnly = errors.New("the database is read-only")

var errStandby = errors.New("the database server is a standby, which takes no writes")

// IsReadOnly says whether a statement failed because its transaction must not write.
func IsReadOnly(e *pgconn.PgError) bool { return e.Code == "25006" }

// guard admits to a pool only sessions that can serve a writer. It refuses sessions of a standby or of a read-only
// database, those to which PostgreSQL has said that they are read-only, and those of another server than the newest
// session's. A session retains what it began with, so a wrong one would stay wrong until it is closed.
type guard struct {
	mu        sync.Mutex
	pool      *pgxpool.Pool // nil until it is made
	server    string        // that of the newest session
	resetAt   time.Time
	refused   error // why the last new session was refused
	refusedAt time.Time

	probing sync.Mutex // one caller at a time looks for a pooler
	way     way
}

// install makes the pool of the configuration ask the guard.
func (g *guard) install(config *pgxpool.Config) {
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
		if IsReadOnly(err) {
			sessionOf(conn).stale = true
			g.closeSometimes()
		}
		return onError(conn, err)
	}
}

// watch gives the guard the pool whose sessions it closes.
func (g *guard) watch(pool *pgxpool.Pool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pool = pool
}

// beforeConnect repeats a refusal that is still fresh, which spares the server and the caller; and makes the connection
// fit for a pooler.
func (g *guard) beforeConnect(ctx context.Context, config *pgx.ConnConfig) error {
	g.mu.Lock()
	fresh, refused := time.Since(g.refusedAt) < refusalHolds, g.refused
	g.mu.Unlock()
	if fresh && refused != nil {
		return refused
	}
	way, err := g.find(ctx, config)
	if way == wayPooled {
		throughPooler(config)
	}
	protectCommits(config)
	return err
}

// usable needs no question to the server: since version 14, PostgreSQL reports both settings when they change.
func usable(_ context.Context, conn *pgx.Conn) (bool, error) {
	c := conn.PgConn()
	return !sessionOf(c).stale && c.ParameterStatus("in_hot_standby") != "on" && c.ParameterStatus("default_transaction_read_only") != "on", nil
}

// askSession is the question to a new session. The time of the start tells servers apart, whatever is between them and the
// service.
const askSession = `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool, pg_postmaster_start_time(), pg_backend_pid()`

func (g *guard) validate(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, askSession).ReadAll()
	if err != nil {
		return fmt.Errorf("asking a new session: %w", err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return errors.New("asking a new session: no answer")
	}
	row := results[0].Rows[0]
	switch {
	case string(row[0]) == "t":
		return g.refuse(errStandby)
	case string(row[1]) == "t":
		return g.refuse(ErrReadOnly)
	}
	direct := string(row[3]) == strconv.FormatUint(uint64(conn.PID()), 10)
	g.mu.Lock()
	if !direct && g.way != wayPooled { // a pooler has come since
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

func (g *guard) refuse(why error) error {
	err := txn.DatabaseUnavailable(nil, "%s", why)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused, g.refusedAt = err, time.Now()
	return err
}

// closeSometimes is closeAll for sessions that fail one after the other.
func (g *guard) closeSometimes() {
	g.mu.Lock()
	recent := time.Since(g.resetAt) < resetEvery
	g.mu.Unlock()
	if !recent {
		g.closeAll()
	}
}

// closeAll closes the idle sessions now, and those in use as soon as they are given back.
func (g *guard) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resetAt = time.Now()
	if g.pool != nil {
		g.pool.Reset()
	}
}
