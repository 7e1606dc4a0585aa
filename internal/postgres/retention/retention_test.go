package retention_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/retention"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

const week = 7 * 24 * time.Hour

// insertOld puts rows of all states into the table; their ids say state, delivery and age in hours.
const insertOld = `INSERT INTO txsvc.transactions (id, kind, state, delivery, abandoned, shard_key, topic, tag, broker, queue_id,
		selector, reason, uniq_key, commit_log_offset, queue_offset, body, created_at, decided_at, lease_until)
	SELECT concat_ws('/', state, delivery, abandoned, hours, n), 'orders', state, delivery, abandoned, 'key', 'topic', '', 'broker-a', 0,
		'hash', '', 'u', 0, 0, CASE delivery WHEN 'pending' THEN 'x'::bytea END, now() - hours * interval '1 hour',
		CASE WHEN state <> 'prepared' THEN now() - hours * interval '1 hour' END, CASE delivery WHEN 'pending' THEN 'infinity'::timestamptz END
	FROM (VALUES ('committed', 'delivered', false), ('committed', 'pending', false), ('rolled_back', 'none', false),
		('rolled_back', 'none', true), ('prepared', 'none', false)) AS s (state, delivery, abandoned),
		(VALUES (1), (167), (169), (1000)) AS a (hours), generate_series(1, $1) AS n`

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}

// patience bounds all waiting of the tests.
const patience = 20 * time.Second

// env is a database of one test.
type env struct {
	t    testing.TB
	db   *postgres.DB
	side *pgxpool.Pool
}

func setup(t testing.TB) *env {
	t.Helper()
	db, err := postgres.Open(t.Context(), stacktest.NewMigrated(t), txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return &env{t: t, db: db, side: db.Pool()}
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

func (e *env) retention() *retention.Sweeper {
	return retention.New(e.db, week, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
}

// sweep does steps until none is due, and returns how many rows they deleted.
func (e *env) sweep(r *retention.Sweeper) (total int64) {
	e.t.Helper()
	for {
		stepped, deleted, err := r.Step(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		if total += deleted; !stepped {
			return total
		}
	}
}

func (e *env) ids() []string {
	e.t.Helper()
	rows, err := e.side.Query(e.t.Context(), `SELECT id FROM txsvc.transactions ORDER BY id`)
	if err != nil {
		e.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	return ids
}

// Only what is decided, delivered and old goes: a message that is not known to be visible needs its row for ever.
func TestRetentionDeletesWhatIsOldAndDone(t *testing.T) {
	e := setup(t)
	const each = 2000 // several steps
	e.exec(insertOld, each)
	before := e.ids()
	if got, want := e.sweep(e.retention()), int64(3*2*each); got != want {
		t.Errorf("deleted %d, want %d", got, want)
	}
	want := slices.DeleteFunc(before, func(id string) bool {
		old := strings.Contains(id, "/169/") || strings.Contains(id, "/1000/")
		return old && !strings.Contains(id, "pending") && !strings.Contains(id, "prepared")
	})
	if got := e.ids(); !slices.Equal(got, want) {
		t.Errorf("%d rows are left, want %d", len(got), len(want))
	}
}

// The times of messages go after their rows, of all processes.
func TestRetentionForgetsTimes(t *testing.T) {
	e := setup(t)
	e.exec(`INSERT INTO txsvc.visible SELECT 'producer-' || p, now() - n * interval '1 day', '' FROM generate_series(1, 3) AS p, generate_series(0, 20) AS n`)
	e.exec(`INSERT INTO txsvc.visible SELECT 'producer-2', now() - interval '40 days' + n * interval '1 s', '' FROM generate_series(1, 6000) AS n`)
	for range 2 {
		e.exec(`UPDATE txsvc.retention SET next_at = now()`)
		e.sweep(retention.New(e.db, 7*24*time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)))
	}
	rows, err := e.side.Query(t.Context(), `SELECT DISTINCT round(extract(epoch FROM now() - before) / 86400)::int || ' ' || count(*) FROM txsvc.visible GROUP BY before ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{"0 3", "1 3", "2 3", "3 3", "4 3", "5 3", "6 3", "7 3", "8 3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got days and entries %v, %v, want %v", got, err, want)
	}
}

// With a short retention, abandoned rows stay for a day, because a process that was stopped may still try to commit a half
// message that they fence.
func TestRetentionLeavesFencesForADay(t *testing.T) {
	e := setup(t)
	e.exec(insertOld, 1)
	e.exec(`UPDATE txsvc.transactions SET decided_at = now() - interval '23 hours' WHERE id LIKE '%/167/%'`)
	e.sweep(retention.New(e.db, time.Minute, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)))
	got := slices.DeleteFunc(e.ids(), func(id string) bool { return !strings.HasPrefix(id, "rolled_back") })
	if want := []string{"rolled_back/none/t/1/1", "rolled_back/none/t/167/1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A sweep that ended is not begun again before its time, by whatever replica.
func TestRetentionRests(t *testing.T) {
	e := setup(t)
	e.sweep(e.retention())
	e.exec(insertOld, 1)
	if deleted := e.sweep(e.retention()); deleted != 0 {
		t.Errorf("%d rows were deleted in a sweep too many", deleted)
	}
	e.exec(`UPDATE txsvc.retention SET next_at = now()`)
	if deleted := e.sweep(e.retention()); deleted != 6 {
		t.Errorf("%d rows were deleted in the next sweep, want 6", deleted)
	}
}

// Replicas share one sweep; none deletes twice or leaves blocks out.
func TestRetentionOfSeveralReplicas(t *testing.T) {
	e := setup(t)
	const each = 3000
	e.exec(insertOld, each)
	var mu sync.Mutex
	var total int64
	var replicas sync.WaitGroup
	for range 4 {
		r := e.retention()
		replicas.Go(func() {
			for idle := 0; idle < 100; {
				stepped, deleted, err := r.Step(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				total += deleted
				mu.Unlock()
				if !stepped {
					idle++
				}
			}
		})
	}
	replicas.Wait()
	if total += e.sweep(e.retention()); total != 3*2*each {
		t.Errorf("deleted %d, want %d", total, 3*2*each)
	}
}

// A row that is locked neither stops the sweep nor is waited for.
func TestRetentionPassesLockedRows(t *testing.T) {
	e := setup(t)
	e.exec(insertOld, 1)
	tx, err := e.side.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM txsvc.transactions WHERE id = 'committed/delivered/f/169/1' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if deleted := e.sweep(e.retention()); deleted != 5 {
		t.Errorf("deleted %d, want all 6 but the locked one", deleted)
	}
}

// The sweep must not read the whole table in each step, also when its statements were planned while the table was small.
func TestRetentionReadsOnlyItsBlocks(t *testing.T) {
	e := setup(t)
	r := e.retention()
	for range 10 {
		e.exec(`UPDATE txsvc.retention SET next_at = now()`)
		e.sweep(r)
	}
	e.exec(insertOld, 2000)
	e.exec(`SELECT pg_stat_reset_single_table_counters('txsvc.transactions'::regclass); UPDATE txsvc.retention SET next_at = now()`)
	e.sweep(r)
	await.True(t, patience, "statistics of the deletes", func() bool { // a connection reports within some seconds
		var sequential, deleted int64
		if err := e.side.QueryRow(t.Context(), `SELECT seq_scan, n_tup_del FROM pg_stat_user_tables
			WHERE schemaname = 'txsvc' AND relname = 'transactions'`).Scan(&sequential, &deleted); err != nil {
			t.Fatal(err)
		}
		if sequential > 0 {
			t.Fatalf("the table was read as a whole %d times", sequential)
		}
		return deleted > 0
	})
}
