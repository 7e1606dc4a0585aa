package sessions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// Session is what the service knows of one session of the server.
type Session struct {
	stale bool // it must not be used again
	// commits: COMMIT of a local transaction may have been sent. From then on nothing of the service may cancel it.
	commits     atomic.Bool
	unconfirmed bool // a COMMIT ended without the confirmation of the standbys that it waited for
	pooled      bool
	own, local  string
}

const sessionKey = "txsvc"

// Of returns what is known of the connection's session.
func Of(conn *pgx.Conn) *Session { return sessionOf(conn.PgConn()) }

func sessionOf(conn *pgconn.PgConn) *Session {
	s, ok := conn.CustomData()[sessionKey].(*Session)
	if !ok {
		s = &Session{}
		conn.CustomData()[sessionKey] = s
	}
	return s
}

// Pooled says whether a connection pooler may give each transaction another session of the server, so that nothing can be
// left in a session.
func (s *Session) Pooled() bool { return s.pooled }

// OwnSettings is what gives the session its own settings back after RESET ALL: further columns of a query, each with a
// comma before it.
func (s *Session) OwnSettings() string { return s.own }

// LocalSettings is what gives one transaction the settings that a pooled session cannot hold, in the form of OwnSettings.
func (s *Session) LocalSettings() string { return s.local }

// CommitStarts says that COMMIT of a local transaction is about to be sent: from now on pgx does not cancel it.
func (s *Session) CommitStarts() { s.commits.Store(true) }

// CommitEnded takes CommitStarts back.
func (s *Session) CommitEnded() { s.commits.Store(false) }

// CommitRuns says whether COMMIT may be at work.
func (s *Session) CommitRuns() bool { return s.commits.Load() }

// TakeUnconfirmed returns, and forgets, that a COMMIT of the session was not confirmed by the standbys.
func (s *Session) TakeUnconfirmed() bool {
	was := s.unconfirmed
	s.unconfirmed = false
	return was
}

// noteUnconfirmed notices that PostgreSQL has given up waiting for standbys: it sends a warning, and goes on to answer that
// COMMIT was done. The name of the C function in the warning is not translated.
func noteUnconfirmed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		sessionOf(conn).unconfirmed = true
	}
}

// errNoCancel is seen by nobody: pgx only tries to dial.
var errNoCancel = errors.New("a COMMIT is not cancelled")

// protectCommits keeps pgx from cancelling a COMMIT. When pgx gives a connection up, it sends the request to cancel on
// another one, so that the server does no work for nobody; but a COMMIT that waits for standbys, once cancelled, is seen
// by others unconfirmed.
func protectCommits(config *pgx.ConnConfig) {
	session, dial, connected := &Session{}, config.DialFunc, config.AfterConnect
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if session.CommitRuns() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		session.pooled = sessionOf(conn).pooled
		conn.CustomData()[sessionKey] = session
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
}

// beginSession is the first statement of every session, and returns what it has set.
//
// COMMIT waits for the disk, whatever the default of the database or the user is: a message must not be visible whose
// transaction is lost when the server crashes. And the warning that COMMIT did not wait for standbys is let through.
//
// The search path is the user's default in this database without the service's own schema, which "$user" brings in when
// the user has the schema's name: a kind that says transactions means a table of the business.
const beginSession = `WITH path AS (
	SELECT current_setting('search_path') AS had, coalesce(string_agg(m[1], ', ' ORDER BY n), '') AS has
	FROM regexp_matches(current_setting('search_path'), '("(?:[^"]|"")*"|[^,"\s]+)', 'g') WITH ORDINALITY AS element (m, n)
	WHERE m[1] <> '"txsvc"' AND lower(m[1]) <> 'txsvc' AND NOT (current_user = 'txsvc' AND m[1] IN ('"$user"', '$user')))
SELECT CASE WHEN has <> had THEN set_config('search_path', has, false) END,
	CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END,
	CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', false) END
FROM path`

// saysNotDurable: a setting made through a pooler does not last.
const saysNotDurable = "synchronous_commit is off for the service's user, and cannot be set through a connection pooler: ALTER ROLE … SET synchronous_commit = on"

func prepareSession(ctx context.Context, conn *pgx.Conn) error {
	session := Of(conn)
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
	if err := errors.Join(err, tx.Rollback(ctx)); err != nil { // ROLLBACK undoes what the statement has set
		return err
	}
	if durable != nil {
		return txn.DatabaseUnavailable(nil, "%s", saysNotDurable)
	}
	name, zone := "txsvc", "UTC" // the pooler believes that the session has these
	session.own = settings(map[string]*string{"application_name": &name, "timezone": &zone}, false)
	session.local = settings(map[string]*string{"search_path": path, "client_min_messages": messages}, true)
	return nil
}

// settings returns columns of a query that set every value that is not nil.
func settings(values map[string]*string, local bool) string {
	var sql strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if value := values[name]; value != nil {
			fmt.Fprintf(&sql, `, set_config('%s', '%s', %t)`, name, strings.ReplaceAll(*value, `'`, `''`), local)
		}
	}
	return sql.String()
}
