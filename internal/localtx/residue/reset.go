package residue

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/sessions"
)

// Reset is how one session is reset after one transaction.
type Reset struct {
	residue Residue
	db      *postgres.DB
	session *sessions.Session
	dblink  string // how to ask for its connections; empty where there is none
	when    when
	dirty   bool // resetting was not enough
}

// when is the time of a reset.
type when int

const (
	never  when = iota
	before      // before COMMIT, because the session is another client's after it
	after       // after COMMIT, in the same round trip
	apart       // after COMMIT, in a round trip of its own
)

// After returns the reset that is needed after a transaction whose own statements can leave the residue in the session.
func (s *Watcher) After(session *sessions.Session, own Residue) Reset {
	leaves, dblink := s.stored.get()
	r := Reset{residue: max(leaves, own), db: s.db, session: session, dblink: dblink, when: after}
	switch {
	case r.residue == None:
		r.when = never
	case session.Pooled():
		r.when = before
	case r.residue == Any && dblink != "":
		// A statement about dblink could not be prepared once dblink is dropped, and then no other one of the round trip.
		r.when = apart
	}
	return r
}

const resetAll = `RESET ALL`

// resetPooled is what a transaction does itself where its session is another client's after it. Nothing is looked for,
// because the session could not be closed.
var resetPooled = []string{resetAll, `UNLISTEN *`, `CLOSE ALL`, `DISCARD TEMP`}

// inspect ends the locks of the session, gives it its own settings back, and says whether nothing else is left: another role,
// and, of all that SQL can leave, temporary objects, channels to which it listens, cursors, prepared statements, and
// connections of dblink.
func inspect(session *sessions.Session, leaves Residue, dblink string) string {
	parts := []string{`current_user = session_user`}
	if leaves == Any {
		parts = append(parts, `(pg_my_temp_schema() = 0 OR NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = pg_my_temp_schema())
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = pg_my_temp_schema()))`,
			`NOT EXISTS (SELECT FROM pg_listening_channels())`,
			`NOT EXISTS (SELECT FROM pg_cursors WHERE is_holdable)`,
			`NOT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)`)
	}
	if dblink != "" {
		parts = append(parts, `coalesce(cardinality(`+dblink+`), 0) = 0`)
	}
	return `SELECT pg_advisory_unlock_all()` + session.OwnSettings() + `, ` + strings.Join(parts, ` AND `)
}

// QueueCommit adds COMMIT to a pipeline, with the reset before or after it.
func (r *Reset) QueueCommit(batch *pgx.Batch) {
	if r.when == before {
		for _, sql := range resetPooled {
			batch.Queue(sql)
		}
		batch.Queue(`SELECT pg_advisory_unlock_all()` + r.session.OwnSettings() + r.session.LocalSettings())
	}
	batch.Queue(`COMMIT`)
	if r.when == after {
		batch.Queue(resetAll)
		batch.Queue(inspect(r.session, r.residue, ""))
	}
}

// ReadBefore takes the replies of what QueueCommit adds before COMMIT.
func (r *Reset) ReadBefore(results pgx.BatchResults) error {
	if r.when != before {
		return nil
	}
	for range len(resetPooled) + 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

// ReadAfter takes the replies of what QueueCommit adds after COMMIT. The transaction is committed, whatever goes wrong here;
// but then the session is not used again.
func (r *Reset) ReadAfter(results pgx.BatchResults) {
	if r.when != after {
		return
	}
	r.dirty = true
	if _, err := results.Exec(); err != nil {
		return
	}
	rows, err := results.Query()
	if err != nil {
		return
	}
	defer rows.Close()
	if rows.Next() {
		values := rows.RawValues()
		r.dirty = len(values) == 0 || !isTrue(values[len(values)-1])
	}
}

// isTrue reads a boolean in either of PostgreSQL's formats.
func isTrue(value []byte) bool { return string(value) == "t" || string(value) == "\x01" }

// Release gives back the connection of a transaction that committed.
func (r *Reset) Release(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	switch {
	case r.dirty:
		_ = conn.Conn().Close(ctx)
	case r.when == apart:
		r.clean(ctx, conn.Conn(), "")
	}
}

// Rollback ends what is left of a transaction that failed, and gives its connection back; where that fails, it closes the
// connection, which makes the server do the same.
func (r *Reset) Rollback(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	c := conn.Conn()
	switch {
	case c.IsClosed():
	case r.residue == None:
		r.db.EndTransaction(ctx, c)
	case c.PgConn().TxStatus() == 'I':
		r.clean(ctx, c, "")
	default:
		r.clean(ctx, c, `ROLLBACK; `)
	}
}

// clean resets a session, after the statements to begin with, and closes it where that is not enough. ROLLBACK does not undo
// everything that a failed transaction has done: locks of the session, for example, stay.
func (r *Reset) clean(ctx context.Context, conn *pgx.Conn, begin string) {
	ctx, cancel := context.WithTimeout(ctx, r.db.Timing().HangWithin)
	defer cancel()
	results, err := conn.PgConn().Exec(ctx, begin+resetAll+`; `+inspect(r.session, Any, r.dblink)).ReadAll()
	if err == nil && len(results) > 0 {
		if rows := results[len(results)-1].Rows; len(rows) == 1 && isTrue(rows[0][len(rows[0])-1]) {
			return
		}
	}
	_ = conn.Close(ctx)
}
