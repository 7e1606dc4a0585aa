// Package residue removes from a session what a local transaction can leave in it and the next one would meet: a setting, a
// lock of the session, a temporary table. A transaction leaves nothing when its statements are plain ones that name
// nothing of that sort, and when no code that is stored in the database does so either, which triggers, defaults and
// views may call. All other transactions are followed by a reset, in the same round trip, which also looks for what it
// cannot reset; a session in which it finds something is closed.
package residue

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
)

// Residue is what can stay behind in a session. The greater one includes the smaller one.
type Residue int

// The sorts of residue.
const (
	None  Residue = iota
	State         // settings, a role, locks of the session
	Any           // all that SQL can leave, and what it can hide
)

// Watcher knows what statements, and the code in the database, can leave in a session. It is safe for concurrent use.
type Watcher struct {
	db       *postgres.DB
	log      *slog.Logger
	leavings leavings
	stored   stored
}

// New returns a Watcher of the database. Until it has looked, every local transaction counts as one that can leave
// something in its session.
func New(db *postgres.DB, log *slog.Logger) *Watcher {
	return &Watcher{db: db, log: log, leavings: leavings{known: make(map[string]Residue)}, stored: stored{leaves: Any}}
}

// Of says what a statement can leave in its session by itself.
func (s *Watcher) Of(sql string) Residue { return s.leavings.of(sql) }

// Names that can be found in SQL: functions whose effect outlasts the transaction, and those that run, or can hide, other
// SQL.
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
func leaves(sql string) Residue {
	switch {
	case !plain.MatchString(sql) || anyName.MatchString(sql):
		return Any
	case stateName.MatchString(localSetting.ReplaceAllString(sql, "")):
		return State
	default:
		return None
	}
}

// leavings remembers the answers of leaves, because the statements of a Planner are mostly the same. Safe for concurrent use.
type leavings struct {
	mu    sync.RWMutex
	known map[string]Residue
}

const leavingsLimit = 1000

func (l *leavings) of(sql string) Residue {
	l.mu.RLock()
	answer, ok := l.known[sql]
	l.mu.RUnlock()
	if ok {
		return answer
	}
	answer = leaves(sql)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) < leavingsLimit {
		l.known[sql] = answer
	}
	return answer
}

// storedCode looks at all code of the database but PostgreSQL's own: function bodies as text, where their language can be
// read so, and expressions as trees, in which functions are numbers. The second column is the expression that asks for the
// connections of dblink, where it is installed.
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

// stored is the knowledge about the code in the database. Safe for concurrent use.
type stored struct {
	mu     sync.RWMutex
	leaves Residue
	dblink string // how to ask for its connections; empty where there is none
}

func (s *stored) get() (leaves Residue, dblink string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.leaves, s.dblink
}

// set replaces the knowledge by the result of a look, and says whether that is worse.
func (s *stored) set(leaves Residue, dblink string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	worse := leaves > s.leaves || dblink != "" && s.dblink == ""
	s.leaves, s.dblink = leaves, dblink
	return worse
}

// Run looks again and again at the code in the database, until ctx is done.
func (s *Watcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "looking at the code in the database; until it succeeds, sessions are reset after each transaction", "error", err)
		}
		pause.For(ctx, max(lookEvery, lookShare*time.Since(start)))
	}
}

// Look is one look of Run. Where new code can leave something in a session, it may have run since the look before, so all
// sessions are closed once.
func (s *Watcher) Look(ctx context.Context) error {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	leaves, dblink := Any, ""
	err := s.db.Pool().QueryRow(ctx, storedCode).Scan(&leaves, &dblink)
	if err != nil {
		leaves, err = Any, fmt.Errorf("reading the database's catalogs: %w", err)
	}
	if s.stored.set(leaves, dblink) {
		s.db.Pool().Reset()
	}
	return err
}
