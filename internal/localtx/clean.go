package localtx

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// A local transaction can leave something in its session that the next one would meet: a setting, a lock of the session, a
// temporary table. It cannot when its statements are plain ones that name nothing of that sort, and neither does any
// code that is stored in the database, which triggers, defaults and views may call. All others are followed by a reset,
// in the same round trip, which also looks at what it does not reset; a session in which that finds something is closed.

// residue is what can stay behind in a session.
type residue int

const (
	residueNone  residue = iota
	residueState         // settings, a role, locks of the session
	residueAny           // all that SQL can leave, and what it can hide
)

// What can be found in SQL by name: functions whose effect outlasts the transaction, and those that run, or can hide, other SQL.
const (
	stateNames = `advisory_lock|advisory_unlock|set_config|setseed`
	anyNames   = `dblink|_to_xml|ts_stat|crosstab|connectby|xpath_table|replication_slot|pg_temp|u&"`
	// forTransaction is a setting that ends with its transaction.
	forTransaction = `set_config\s*\(([^()]|\([^()]*\))*,\s*true\s*\)`
)

var (
	localSetting = regexp.MustCompile(`(?i)` + forTransaction)
	stateName    = regexp.MustCompile(`(?i)` + stateNames)
	anyName      = regexp.MustCompile(`(?i)` + anyNames + `|\binto\s+(local\s+|global\s+)?temp`)
	plain        = regexp.MustCompile(`(?i)^\s*\(*\s*(select|insert|update|delete|merge|with|values|table|set\s+(local|constraints))\b`)
)

// leaves says what a statement can leave behind by itself.
func leaves(sql string) residue {
	switch {
	case !plain.MatchString(sql) || anyName.MatchString(sql):
		return residueAny
	case stateName.MatchString(localSetting.ReplaceAllString(sql, "")):
		return residueState
	default:
		return residueNone
	}
}

// leavings remembers the answers of leaves: a Planner's statements are mostly the same.
type leavings struct {
	mu    sync.RWMutex
	known map[string]residue
}

const leavingsKept = 1000

func (l *leavings) of(statements []Statement) (most residue) {
	for _, s := range statements {
		most = max(most, l.ofOne(s.SQL))
	}
	return most
}

func (l *leavings) ofOne(sql string) residue {
	l.mu.RLock()
	answer, ok := l.known[sql]
	l.mu.RUnlock()
	if ok {
		return answer
	}
	answer = leaves(sql)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) < leavingsKept {
		l.known[sql] = answer
	}
	return answer
}

// storedCode looks at all code of the database but PostgreSQL's own: function bodies as text, where their
// language lets that be read, and expressions as trees, in which functions stand by number. The second column is how
// to ask for the connections of dblink, where it is installed.
const storedCode = `WITH lasting AS (SELECT ':(funcid|opfuncid) (' || string_agg(oid::text, '|') || ') ' AS call FROM pg_catalog.pg_proc
	WHERE oid < 16384 AND proname ~ '` + stateNames + `|` + anyNames + `'),
functions AS (SELECT l.lanname AS language, to_jsonb(p)->>'prosqlbody' AS tree,
		regexp_replace(p.prosrc, '\m(update\s+(only\s+)?[\w.$"]+(\s+(as\s+)?[\w$"]+)?\s+set|update\s+set|set\s+(local|constraints)|` + forTransaction + `)', '', 'gi') AS body
	FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
	WHERE p.oid >= 16384)
SELECT CASE
	WHEN EXISTS (SELECT FROM functions WHERE language NOT IN ('sql', 'plpgsql', 'c', 'internal') OR body ~* '` + anyNames + `'
		OR language IN ('sql', 'plpgsql') AND body ~* '\m(execute|create|listen|load|prepare|deallocate|discard|hold|temp|temporary)\M' OR tree ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE oid >= 16384 AND ev_action::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_attrdef WHERE adbin::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conbin::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_policy WHERE polqual::text ~ call OR polwithcheck::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgqual::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_index WHERE indexprs::text ~ call OR indpred::text ~ call)
	OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typdefaultbin::text ~ call) THEN 2
	WHEN EXISTS (SELECT FROM functions WHERE body ~* '` + stateNames + `' OR language IN ('sql', 'plpgsql') AND body ~* '\m(set|reset)\M') THEN 1
	ELSE 0 END,
	coalesce((SELECT format('%I.%I()', n.nspname, p.proname) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE p.proname = 'dblink_get_connections' AND p.pronargs = 0 LIMIT 1), '')
FROM lasting`

const (
	lookEvery = 10 * time.Second
	// lookShare bounds the part of the time that looking takes, in a database with much code.
	lookShare = 100
)

// stored is what is known of the code in the database. Safe for concurrent use.
type stored struct {
	mu     sync.RWMutex
	leaves residue
	dblink string // how to ask for its connections; empty where there is none
}

func (s *stored) get() (leaves residue, dblink string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.leaves, s.dblink
}

// set keeps what a look has found, and says whether it is worse than what was known.
func (s *stored) set(leaves residue, dblink string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	worse := leaves > s.leaves || dblink != "" && s.dblink == ""
	s.leaves, s.dblink = leaves, dblink
	return worse
}

// RunWatch looks again and again at the code in the database, until ctx is done. Without it, every local transaction counts as
// one that can leave something in its session.
func (s *Store) RunWatch(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		if err := s.Watch(ctx); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "looking at the code in the database; until it succeeds, sessions are reset after each transaction", "error", err)
		}
		pause.For(ctx, max(lookEvery, lookShare*time.Since(start)))
	}
}

// Watch is one look of RunWatch. Where code has come that can leave something in a session, it may have run since the look
// before, and all sessions are closed once.
func (s *Store) Watch(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	leaves, dblink := residueAny, ""
	err := s.pool.QueryRow(ctx, storedCode).Scan(&leaves, &dblink)
	if err != nil {
		leaves, err = residueAny, fmt.Errorf("reading the database's catalogs: %w", err)
	}
	if s.stored.set(leaves, dblink) {
		s.pool.Reset()
	}
	return err
}

// reset says how a session is cleaned after a transaction.
type reset struct {
	of    residue
	apart bool // not in the round trip of COMMIT
	// pooled: before COMMIT, after which the session is another client's.
	pooled bool
}

func (s *Store) resetOf(a *txn.Attempt, w work, conn *pgxpool.Conn) reset {
	leaves, dblink := s.stored.get()
	switch {
	case w.handle != nil:
		leaves = residueAny
	case locksSession(a, w):
		leaves = max(leaves, residueState)
	}
	leaves = max(leaves, s.leavings.of(w.statements))
	// A statement about dblink could not be prepared once that is dropped, and no other one with it.
	pooled := sessionOf(conn.Conn().PgConn()).pooled
	return reset{of: leaves, apart: leaves == residueAny && dblink != "" && !pooled, pooled: leaves != residueNone && pooled}
}

func (r reset) piped() bool { return r.of != residueNone && !r.apart && !r.pooled }

const resetAll = `RESET ALL`

// inspect ends the locks of the session, gives it back its own settings, and says whether nothing else is left: another role, and
// of what SQL can leave, temporary objects, channels it listens to, cursors, prepared statements, connections of dblink.
func inspect(conn *pgconn.PgConn, of residue, dblink string) string {
	parts := []string{`current_user = session_user`}
	if of == residueAny {
		parts = append(parts, `(pg_my_temp_schema() = 0 OR NOT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = pg_my_temp_schema())
				AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = pg_my_temp_schema()))`,
			`NOT EXISTS (SELECT FROM pg_listening_channels())`,
			`NOT EXISTS (SELECT FROM pg_cursors WHERE is_holdable)`,
			`NOT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)`)
	}
	if dblink != "" {
		parts = append(parts, `coalesce(cardinality(`+dblink+`), 0) = 0`)
	}
	return `SELECT pg_advisory_unlock_all()` + sessionOf(conn).own + `, ` + strings.Join(parts, ` AND `)
}

// pooledReset is what a transaction does itself, where its session is another client's after it: what it would find cannot be
// closed.
var pooledReset = []string{resetAll, `UNLISTEN *`, `CLOSE ALL`, `DISCARD TEMP`}

// queueCommit adds COMMIT to a pipeline, with the reset: behind it, or before it where the session ends with it.
func (r *run) queueCommit(batch *pgx.Batch) {
	if r.reset.pooled {
		for _, sql := range pooledReset {
			batch.Queue(sql)
		}
		session := sessionOf(r.conn.Conn().PgConn())
		batch.Queue(`SELECT pg_advisory_unlock_all()` + session.own + session.local)
	}
	batch.Queue(`COMMIT`)
	if r.reset.piped() {
		batch.Queue(resetAll)
		batch.Queue(inspect(r.conn.Conn().PgConn(), r.reset.of, ""))
	}
}

// readReset takes the replies of what queueCommit adds before COMMIT.
func (r *run) readReset(results pgx.BatchResults) error {
	if !r.reset.pooled {
		return nil
	}
	for range len(pooledReset) + 1 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

// readClean takes the replies of what queueCommit adds behind COMMIT. The transaction is committed, whatever goes wrong here; but then the session is
// not used again.
func (r *run) readClean(results pgx.BatchResults) {
	if !r.reset.piped() {
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

// clean resets a session, after the statements to begin with, and closes it where that is not enough. Not all ends with
// ROLLBACK that a failed transaction has done: locks of the session, for example, do not.
func (s *Store) clean(ctx context.Context, conn *pgxpool.Conn, begin string) {
	ctx, cancel := context.WithTimeout(ctx, hangTimeout)
	defer cancel()
	c := conn.Conn().PgConn()
	_, dblink := s.stored.get()
	results, err := c.Exec(ctx, begin+resetAll+`; `+inspect(c, residueAny, dblink)).ReadAll()
	if err == nil && len(results) > 0 {
		if rows := results[len(results)-1].Rows; len(rows) == 1 && isTrue(rows[0][len(rows[0])-1]) {
			return
		}
	}
	_ = conn.Conn().Close(ctx)
}
