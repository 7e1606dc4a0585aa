package localtx_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/localtx/residue"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/postgres/leases"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
	"github.com/txsvc/txsvc/migrations"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}

// patience bounds all waiting of the tests for what must come.
const patience = 20 * time.Second

// quick is a timing whose leases end while a test waits.
var quick = func() txn.Timing {
	t := txn.DefaultTiming()
	t.WriteWithin, t.ArriveWithin, t.BrokerQueue, t.Slack = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	return t
}()

// env is a database of one test, with a store on it.
type env struct {
	t     testing.TB
	url   string
	store *store
	pool  *pgxpool.Pool // the store's
	side  *pgxpool.Pool // the test's own, past any proxy
}

type option func(*options)

type options struct {
	timing    txn.Timing
	programs  map[string]localtx.Program
	through   func(url string) string // what the store is given instead of the database's URL
	ddl       string
	keepsBody []string
}

func withTiming(timing txn.Timing) option { return func(o *options) { o.timing = timing } }

func withProgram(kind string, p localtx.Program) option {
	return func(o *options) { o.programs[kind] = p }
}

func withPrograms(all func(add func(kind string, p localtx.Program))) option {
	return func(o *options) { all(func(kind string, p localtx.Program) { o.programs[kind] = p }) }
}

func withTables(ddl string) option { return func(o *options) { o.ddl = ddl } }

func withBodies(kinds ...string) option { return func(o *options) { o.keepsBody = kinds } }

func withURL(through func(string) string) option { return func(o *options) { o.through = through } }

// setup migrates a database and returns a store on it that knows the kind "orders" and those of the options.
func setup(t testing.TB, opts ...option) *env {
	t.Helper()
	return setupMigrated(t, stacktest.NewMigrated(t), opts...)
}

// setupAt is setup with the database of another server.
func setupAt(t testing.TB, url string, opts ...option) *env {
	t.Helper()
	if err := migrations.Up(t.Context(), url, migrations.Core, migrations.Example); err != nil {
		t.Fatal(err)
	}
	return setupMigrated(t, url, opts...)
}

func setupMigrated(t testing.TB, url string, opts ...option) *env {
	t.Helper()
	o := options{timing: txn.DefaultTiming(), programs: map[string]localtx.Program{"orders": ordersProgram{}}, through: func(url string) string { return url }}
	for _, opt := range opts {
		opt(&o)
	}
	e := &env{t: t, url: url, side: newPool(t, url)}
	if o.ddl != "" {
		e.exec(o.ddl)
	}
	e.store = newStore(t, o.through(url), o)
	e.pool = e.store.Pool()
	return e
}

// store is all rooms on one database.
type store struct {
	*postgres.DB
	*rows.Table
	*rows.Marks
	*leases.Claims
	*leases.Leases
	*leases.Producers
	*accepted.Lists
	*localtx.Runner
	residue *residue.Watcher
}

func newStore(t testing.TB, url string, o options) *store {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	db, err := postgres.Open(t.Context(), url, o.timing, log)
	if err != nil {
		t.Fatal(err)
	}
	marks := rows.NewMarks(db, o.keepsBody, log)
	table, watcher := rows.New(db, marks), residue.New(db, log)
	s := &store{
		DB: db, Table: table, Marks: marks, Claims: leases.NewClaims(db), Leases: leases.New(db), Producers: leases.NewProducers(db, log),
		Lists: accepted.New(db), Runner: localtx.New(db, table, watcher, o.programs), residue: watcher,
	}
	t.Cleanup(s.Close)
	return s
}

// Close may be called by a test itself, before the end.
func (s *store) Close() {
	s.Runner.Close()
	s.DB.Close()
}

// newPool is a pool of the test's own.
func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db.Pool()
}

// connected makes the store's pool hold so many connections.
func (e *env) connected(n int) {
	e.t.Helper()
	for range n {
		conn, err := e.pool.Acquire(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		defer conn.Release()
	}
}

func (e *env) exec(sql string, args ...any) {
	e.t.Helper()
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol} // several statements in one text
	}
	if _, err := e.side.Exec(e.t.Context(), sql, args...); err != nil {
		e.t.Fatalf("%s: %v", sql, err)
	}
}

// value returns the only column of the only row.
func value[T any](e *env, sql string, args ...any) T {
	e.t.Helper()
	var v T
	if err := e.side.QueryRow(e.t.Context(), sql, args...).Scan(&v); err != nil {
		e.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// count counts rows: what follows FROM.
func (e *env) count(from string, args ...any) int {
	e.t.Helper()
	return value[int](e, "SELECT count(*) FROM "+from, args...)
}

func (e *env) find(id string) *txn.Transaction {
	e.t.Helper()
	t, err := e.store.Find(e.t.Context(), id)
	if err != nil {
		e.t.Fatalf("finding %s: %v", id, err)
	}
	return t
}

func (e *env) decide(a *txn.Attempt) (txn.Resolution, *txn.Transaction) {
	e.t.Helper()
	verdict, t, err := e.store.Decide(e.t.Context(), a.Message, a.Half)
	if err != nil {
		e.t.Fatalf("deciding %s: %v", a.Request.ID, err)
	}
	return verdict, t
}

// lock begins a transaction that holds what the statement locks, until it is released.
func (e *env) lock(sql string, args ...any) (release func()) {
	e.t.Helper()
	tx, err := e.side.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := tx.Exec(e.t.Context(), sql, args...); err != nil {
		e.t.Fatalf("%s: %v", sql, err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	e.t.Cleanup(release)
	return release
}

// awaitWaiters returns when n sessions of the database wait for a lock.
func (e *env) awaitWaiters(n int) {
	e.t.Helper()
	await.True(e.t, patience, fmt.Sprintf("%d sessions that wait for a lock", n), func() bool {
		return e.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	})
}

// inBackground runs the attempt and returns its outcome on a channel.
func (e *env) inBackground(a *txn.Attempt) <-chan txn.Outcome {
	done := make(chan txn.Outcome, 1)
	go func() { done <- e.store.Run(context.Background(), a) }()
	return done
}

func wait[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %s", what, patience)
		panic("unreachable")
	}
}

var serial atomic.Int64

const order = `{"customer":"acme","currency":"EUR","items":[{"sku":"pen","quantity":3,"amount_minor":150},{"sku":"ink","quantity":1,"amount_minor":900}]}`

// attempt returns a new attempt with a half message of its own.
func attempt(kind, id, payload string, timeouts ...time.Duration) *txn.Attempt {
	n := serial.Add(1)
	queue := txn.Queue{Broker: "broker-a", ID: int(n % 8)}
	k := &txn.Kind{Name: kind, Destination: txn.Destination{Topic: "topic-" + kind}, Timeout: 5 * time.Second}
	if len(timeouts) > 0 {
		k.Timeout = timeouts[0]
	}
	r := txn.Request{
		Kind: kind, ID: id, ShardKey: "key-" + id, Payload: json.RawMessage(payload), Tag: "created",
		Keys: []string{"k1", "k2"}, Properties: map[string]string{"source": "tests"},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	hash := sha256.Sum256(r.Payload)
	half := txn.Half{
		UniqKey: fmt.Sprintf("%032X", n), Broker: queue.Broker, CommitLogOffset: 1000 + n, QueueOffset: n, TransactionID: "t",
	}
	a := &txn.Attempt{
		Kind: k, Request: r, Fingerprint: txn.Fingerprint{Exact: hash[:], Value: hash[:16]}, Half: half, CreatedAt: time.Now(),
		Route: txn.Route{Queue: queue, Selector: "hash", Reason: "fnv1a64(shard_key) mod 8"},
	}
	a.Message = txn.Message{
		UniqKey: half.UniqKey, Topic: k.Topic, Tag: r.Tag, Keys: r.Keys, ShardKey: r.ShardKey, TxID: id, Kind: kind,
		Properties: r.Properties, Traceparent: r.Traceparent, Body: r.Payload, Queue: queue,
	}
	return a
}

// sameRequest returns another attempt at a's request, with a half message of its own.
func sameRequest(a *txn.Attempt) *txn.Attempt {
	return attempt(a.Kind.Name, a.Request.ID, string(a.Request.Payload), a.Kind.Timeout)
}

func wantKind(t testing.TB, o txn.Outcome, want txn.OutcomeKind) {
	t.Helper()
	if o.Kind != want {
		t.Fatalf("outcome: got %s (error %v), want %s", outcomeNames[o.Kind], o.Err, outcomeNames[want])
	}
}

var outcomeNames = map[txn.OutcomeKind]string{
	txn.OutcomeCommitted: "committed", txn.OutcomeRejected: "rejected", txn.OutcomeTaken: "taken",
	txn.OutcomeFailed: "failed", txn.OutcomeUnknown: "unknown",
}

func wantFailed(t testing.TB, o txn.Outcome, code txn.Code, detail string) {
	t.Helper()
	wantKind(t, o, txn.OutcomeFailed)
	if txn.CodeOf(o.Err) != code || !strings.Contains(o.Err.Error(), detail) {
		t.Fatalf("error: got %v, want %s with %q", o.Err, code, detail)
	}
}

func wantVerdict(t testing.TB, got, want txn.Resolution) {
	t.Helper()
	names := []string{"undecided", "rollback", "commit", "delivered"}
	if got != want {
		t.Fatalf("verdict: got %s, want %s", names[got], names[want])
	}
}

// handler makes a function a Planner whose plan is to run it.
type handler func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error)

func (h handler) Plan(in localtx.Input) (localtx.Plan, error) {
	return localtx.Plan{Run: func(ctx context.Context, tx pgx.Tx) (any, error) { return h(ctx, tx, in) }}, nil
}

// isolated is a Planner at an isolation level.
type isolated struct {
	localtx.Planner
	level pgx.TxIsoLevel
}

func (i isolated) Plan(in localtx.Input) (localtx.Plan, error) {
	plan, err := i.Planner.Plan(in)
	plan.Isolation = i.level
	return plan, err
}

// planner makes a function a Planner.
type planner func(in localtx.Input) (localtx.Plan, error)

func (p planner) Plan(in localtx.Input) (localtx.Plan, error) { return p(in) }

// statements is a Planner of fixed statements, with the id as $1 where they have it.
func statements(texts ...string) planner {
	return func(in localtx.Input) (localtx.Plan, error) {
		var plan localtx.Plan
		for _, text := range texts {
			s := localtx.Statement{SQL: text}
			if strings.Contains(text, "$1") {
				s.Args = []any{in.ID}
			}
			plan.Statements = append(plan.Statements, s)
		}
		return plan, nil
	}
}

// gate is a table whose only row a test locks to stop others there.
const gate = `CREATE TABLE gate (n int CHECK (n >= 0)); INSERT INTO gate VALUES (0)`

// each is a handler that executes the statements one by one, with the id as $1 where they have it.
func each(texts ...string) handler {
	return func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
		plan, _ := statements(texts...)(in)
		for _, s := range plan.Statements {
			if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

func sameJSON(t testing.TB, what string, got json.RawMessage, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}
