package sessions

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// way is how the server is reached.
type way int

const (
	wayUnknown way = iota
	wayDirect
	wayPooled // a pooler gives each transaction another session of the server, or may do so
)

// throughPooler makes a connection ask for nothing that lasts longer than a transaction: PgBouncer refuses settings that it
// does not know when a session begins, and hands a prepared statement to the next client, or loses it.
func throughPooler(config *pgx.ConnConfig) {
	delete(config.RuntimeParams, "statement_timeout")
	delete(config.RuntimeParams, "idle_in_transaction_session_timeout")
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.StatementCacheCapacity = 0
}

const saysStatements = "the connection pooler gives each statement another session: the service needs pool_mode = transaction (or session)"

// find finds out, once, whether there is a pooler before the server.
func (g *guard) find(ctx context.Context, config *pgx.ConnConfig) (way, error) {
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
	defer HangUp(ctx, conn)
	pooled, err := otherSession(ctx, conn)
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
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = found
	return found, nil
}

// otherSession says whether a statement runs in another session than the one that the connection was given when it began.
func otherSession(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return false, errors.Join(err, errors.New("no answer"))
	}
	return string(results[0].Rows[0][0]) != strconv.FormatUint(uint64(conn.PID()), 10), nil
}
