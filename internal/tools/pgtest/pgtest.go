// Package pgtest gives tests of the packages on PostgreSQL a database of their own, with all of these packages on it, and
// what they run there: attempts, local transactions, and a proxy that breaks the network.
//
// A test package that uses it needs the TestMain that stacktest describes.
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/localtx/residue"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/postgres/leases"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
	"github.com/txsvc/txsvc/migrations"
)

// Patience bounds each wait of a test for something that must come.
const Patience = 20 * time.Second

// Quick is a timing whose leases end while a test waits.
var Quick = func() txn.Timing {
	t := txn.DefaultTiming()
	t.WriteWithin, t.ArriveWithin, t.BrokerQueue, t.Slack = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	return t
}()

// Env is a database of one test, with a store on it.
type Env struct {
	T     testing.TB
	URL   string
	Store *Store
	Pool  *pgxpool.Pool // the store's
	Side  *pgxpool.Pool // the test's own, past any proxy
}

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	timing    txn.Timing
	programs  map[string]task.Program
	through   func(url string) string
	ddl       string
	keepsBody []string
}

// WithTiming gives the store other durations than the default ones.
func WithTiming(timing txn.Timing) Option { return func(o *options) { o.timing = timing } }

// WithProgram adds a kind.
func WithProgram(kind string, p task.Program) Option {
	return func(o *options) { o.programs[kind] = p }
}

// WithPrograms adds many kinds.
func WithPrograms(all func(add func(kind string, p task.Program))) Option {
	return func(o *options) { all(func(kind string, p task.Program) { o.programs[kind] = p }) }
}

// WithTables executes the DDL before the store is made.
func WithTables(ddl string) Option { return func(o *options) { o.ddl = ddl } }

// WithBodies names the kinds whose rows retain their bodies after the delivery.
func WithBodies(kinds ...string) Option { return func(o *options) { o.keepsBody = kinds } }

// WithURL gives the store another URL than the database's, such as that of a proxy.
func WithURL(through func(string) string) Option { return func(o *options) { o.through = through } }

func newOptions(opts []Option) options {
	o := options{timing: txn.DefaultTiming(), programs: map[string]task.Program{"orders": Orders{}}, through: func(url string) string { return url }}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// New returns a migrated database with a store on it that knows the kind "orders" and those of the options.
func New(t testing.TB, opts ...Option) *Env {
	t.Helper()
	return newMigrated(t, stacktest.NewMigrated(t), opts)
}

// NewAt is [New] with the database of another server, which it migrates.
func NewAt(t testing.TB, url string, opts ...Option) *Env {
	t.Helper()
	if err := migrations.Up(t.Context(), url, migrations.Core, migrations.Example); err != nil {
		t.Fatal(err)
	}
	return newMigrated(t, url, opts)
}

func newMigrated(t testing.TB, url string, opts []Option) *Env {
	t.Helper()
	o := newOptions(opts)
	e := &Env{T: t, URL: url, Side: NewPool(t, url)}
	if o.ddl != "" {
		e.Exec(o.ddl)
	}
	e.Store = newStore(t, o.through(url), o)
	e.Pool = e.Store.Pool()
	return e
}

// Store is all packages on one database, as one process has them.
type Store struct {
	*postgres.DB
	*rows.Table
	*rows.Marks
	*leases.Claims
	*leases.Leases
	*producers.Producers
	*accepted.Lists
	*localtx.Runner
	Residue *residue.Watcher

	prefix string // see Tracking
}

// Another returns a second store on the database, as another replica has it. Of the options, those for the database have
// no effect.
func (e *Env) Another(opts ...Option) *Store {
	e.T.Helper()
	return newStore(e.T, e.URL, newOptions(opts))
}

func newStore(t testing.TB, url string, o options) *Store {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	db, err := postgres.Open(t.Context(), url, o.timing, log)
	if err != nil {
		t.Fatal(err)
	}
	self := producers.NewSelf()
	known := producers.New(db, self, log)
	marks := rows.NewMarks(db, self, o.keepsBody, log)
	table, watcher := rows.New(db, marks, known), residue.New(db, log)
	s := &Store{
		DB: db, Table: table, Marks: marks, Claims: leases.NewClaims(db), Leases: leases.New(db, self), Producers: known,
		Lists: accepted.New(db), Runner: localtx.New(db, table, self, watcher, o.programs), Residue: watcher,
	}
	t.Cleanup(s.Close)
	return s
}

// Close stops the store. A test may call it itself, before the end.
func (s *Store) Close() {
	s.Runner.Close()
	s.DB.Close()
}

// NewPool returns a pool of the test's own.
func NewPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db.Pool()
}

// Connected makes the store's pool hold so many connections.
func (e *Env) Connected(n int) {
	e.T.Helper()
	for range n {
		conn, err := e.Pool.Acquire(e.T.Context())
		if err != nil {
			e.T.Fatal(err)
		}
		defer conn.Release()
	}
}

// Exec executes one statement with arguments, or several without.
func (e *Env) Exec(sql string, args ...any) {
	e.T.Helper()
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol} // several statements in one text
	}
	if _, err := e.Side.Exec(e.T.Context(), sql, args...); err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
}

// Value returns the only column of the only row.
func Value[V any](e *Env, sql string, args ...any) V {
	e.T.Helper()
	var v V
	if err := e.Side.QueryRow(e.T.Context(), sql, args...).Scan(&v); err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Count counts rows; from is the text after FROM.
func (e *Env) Count(from string, args ...any) int {
	e.T.Helper()
	return Value[int](e, "SELECT count(*) FROM "+from, args...)
}

// Find returns the transaction with the id.
func (e *Env) Find(id string) *txn.Transaction {
	e.T.Helper()
	t, err := e.Store.Find(e.T.Context(), id)
	if err != nil {
		e.T.Fatalf("finding %s: %v", id, err)
	}
	return t
}

// Decide answers a check-back of the attempt's half message.
func (e *Env) Decide(a *txn.Attempt) (txn.Resolution, *txn.Transaction) {
	e.T.Helper()
	resolution, t, err := e.Store.Decide(e.T.Context(), a.Message, a.Half)
	if err != nil {
		e.T.Fatalf("deciding %s: %v", a.Request.ID, err)
	}
	return resolution, t
}

// Fenced returns the half messages that the row fences.
func (e *Env) Fenced(id string) []string {
	e.T.Helper()
	return Value[[]string](e, `SELECT coalesce(fenced, '{}') FROM txsvc.transactions WHERE id = $1`, id)
}

// Lock begins a transaction that holds what the statement locks, until it is released.
func (e *Env) Lock(sql string, args ...any) (release func()) {
	e.T.Helper()
	tx, err := e.Side.Begin(e.T.Context())
	if err != nil {
		e.T.Fatal(err)
	}
	if _, err := tx.Exec(e.T.Context(), sql, args...); err != nil {
		e.T.Fatalf("%s: %v", sql, err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	e.T.Cleanup(release)
	return release
}

// AwaitWaiters returns when n sessions of the database wait for a lock.
func (e *Env) AwaitWaiters(n int) {
	e.T.Helper()
	await.True(e.T, Patience, fmt.Sprintf("%d sessions that wait for a lock", n), func() bool {
		return e.Count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	})
}

// InBackground runs the attempt and returns its outcome on a channel.
func (e *Env) InBackground(a *txn.Attempt) <-chan txn.Outcome {
	done := make(chan txn.Outcome, 1)
	go func() { done <- e.Store.Run(context.Background(), a) }()
	return done
}

// Commit commits attempts one after the other.
func (e *Env) Commit(attempts ...*txn.Attempt) (outcomes []txn.Outcome) {
	e.T.Helper()
	for _, a := range attempts {
		o := e.Store.Run(e.T.Context(), a)
		WantKind(e.T, o, txn.OutcomeCommitted)
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// CommitOrders commits new attempts of the kind "orders".
func (e *Env) CommitOrders(ids ...string) (attempts []*txn.Attempt) {
	e.T.Helper()
	for _, id := range ids {
		attempts = append(attempts, Attempt("orders", id, Order))
	}
	e.Commit(attempts...)
	return attempts
}

// Marking writes the store's delivered marks until the test ends, or stop is called.
func (e *Env) Marking() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Store.Marks.Write(ctx) })
	stop = func() { cancel(); wg.Wait() }
	e.T.Cleanup(stop)
	return stop
}
