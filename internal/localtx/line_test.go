package localtx_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// counters gives each key's transactions the numbers of their order: the row's lock makes them wait for each other.
const counters = `CREATE TABLE counters (key text PRIMARY KEY, n int NOT NULL)`

const count = `INSERT INTO counters VALUES (@shard_key, 1) ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n`

// ordered returns an attempt of an ordered kind.
func ordered(kind, id, key string) *txn.Attempt {
	a := pgtest.Attempt(kind, id, `{}`)
	a.Kind.Ordered = true
	a.Request.ShardKey, a.Message.ShardKey = key, key
	return a
}

// counting is an environment with a kind whose transactions are counted by key, in SQL and in steps.
func counting(t testing.TB, opts ...pgtest.Option) *pgtest.Env {
	t.Helper()
	steps := pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		var n int
		err := tx.QueryRow(ctx, strings.ReplaceAll(count, "@shard_key", "$1"), in.ShardKey).Scan(&n)
		return map[string]int{"n": n}, err
	})
	return pgtest.New(t, append([]pgtest.Option{pgtest.WithTables(counters), pgtest.WithProgram("counted", pgtest.SQL(t, count)), pgtest.WithProgram("steps", steps)}, opts...)...)
}

// Places in a line are in the order of the COMMITs, which the counters know.
func TestLinesAreInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	e := counting(t)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			a := ordered([]string{"counted", "steps"}[i%2], fmt.Sprint("tx-", i), fmt.Sprint("key-", i%3))
			a.Kind.Topic = "topic"
			a.Kind.Timeout = time.Minute // 100 wait for each key, longer than usual on a machine with other work
			if i%4 > 1 {
				a = pgtest.Outbox(a)
			}
			if o := e.Store.Run(context.Background(), a); o.Kind != txn.OutcomeCommitted {
				t.Errorf("got %s: %v", pgtest.OutcomeNames[o.Kind], o.Err)
			}
		})
	}
	wg.Wait()
	inverted := e.Count(`(SELECT (result->>'n')::int - lag((result->>'n')::int) OVER (PARTITION BY shard_key ORDER BY line) AS step
		FROM txsvc.transactions) AS steps WHERE step <> 1`)
	if inverted > 0 {
		t.Errorf("%d of 300 transactions stand at the wrong place of their line", inverted)
	}
}

// At the higher isolation levels transactions of one key wait for their line before they take a snapshot: they see what
// those before them did, and none fails to serialize.
func TestLinesAtHigherIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			runs := atomic.Int64{}
			e := counting(t, pgtest.WithProgram("isolated", pgtest.Isolated(pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				runs.Add(1)
				if strings.HasSuffix(in.ID, "7") {
					return nil, &txn.Rejection{Message: "no"}
				}
				var n int
				err := tx.QueryRow(ctx, strings.ReplaceAll(count, "@shard_key", "$1"), in.ShardKey).Scan(&n)
				return map[string]int{"n": n}, err
			}), level)))
			e.Connected(16) // connecting takes its time on a busy machine, and those who wait in line have 5 s each
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					o := e.Store.Run(context.Background(), ordered("isolated", fmt.Sprint("tx-", i), "a"))
					if want := map[bool]txn.OutcomeKind{true: txn.OutcomeRejected, false: txn.OutcomeCommitted}[i%10 == 7]; o.Kind != want {
						t.Errorf("tx-%d: got %s, want %s: %v", i, pgtest.OutcomeNames[o.Kind], pgtest.OutcomeNames[want], o.Err)
					}
				})
			}
			wg.Wait()
			if got := runs.Load(); got != 60 {
				t.Errorf("60 transactions were run %d times", got)
			}
			if n := e.Count(`(SELECT (result->>'n')::int - lag((result->>'n')::int) OVER (ORDER BY line) AS step
				FROM txsvc.transactions WHERE state = 'committed') AS steps WHERE step <> 1`); n > 0 {
				t.Errorf("%d stand at the wrong place of their line", n)
			}
			if n := e.Count(`pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n > 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

// Only the first pending row of a line is its head; marks of this process count before they are in the table.
func TestHeadOfALine(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"counted", "steps"} {
		t.Run(kind, func(t *testing.T) {
			e := counting(t)
			o := e.Commit(ordered(kind, "a1", "a"), ordered(kind, "a2", "a"), ordered(kind, "b1", "b"))
			if got := []bool{o[0].Head, o[1].Head, o[2].Head}; !slices.Equal(got, []bool{true, false, true}) {
				t.Errorf("heads: got %v, want the first of each key", got)
			}
			e.Store.MarkDelivered("a1", time.Now(), true) // and no marker runs
			if e.Store.AwaitHead(t.Context(), o[1].Transaction) != true {
				t.Error("the second waits, although the first is marked")
			}
			if o := e.Commit(ordered(kind, "a3", "a")); o[0].Head {
				t.Error("the third is the head, although the second is pending")
			}
			e.Store.MarkDelivered("a2", time.Now(), true)
			e.Store.MarkDelivered("a3", time.Now(), true)
			if o := e.Commit(ordered(kind, "a4", "a")); !o[0].Head {
				t.Error("the fourth is not the head, although all before it are marked")
			}
		})
	}
}

func TestAwaitTurn(t *testing.T) {
	t.Parallel()
	e := counting(t)
	first, second := ordered("counted", "a1", "a"), ordered("counted", "a2", "a")
	o := e.Commit(first, second)
	await := func() <-chan bool {
		done := make(chan bool, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), pgtest.Patience)
			defer cancel()
			done <- e.Store.AwaitHead(ctx, o[1].Transaction)
		}()
		return done
	}
	// Another process delivers the first: it is seen in the table.
	done := await()
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'delivered' WHERE id = $1`, "a1")
	if !pgtest.Wait(t, "turn", done) {
		t.Error("its turn did not come")
	}
	// What nobody works on is not waited for.
	e.Exec(`UPDATE txsvc.transactions SET delivery = 'pending', lease_until = now() WHERE id = $1`, "a1")
	if pgtest.Wait(t, "end of the wait", await()) {
		t.Error("its turn came before the one before it")
	}
}

// A local transaction that hangs keeps those of its key waiting, and says so; others pass.
func TestStuckLine(t *testing.T) {
	t.Parallel()
	e := counting(t, pgtest.WithTables(counters+`; `+pgtest.Gate), pgtest.WithProgram("gated", pgtest.Each(`SELECT FROM gate FOR UPDATE`)))
	release := e.Lock(`SELECT FROM gate FOR UPDATE`)
	e.Connected(2) // a new connection may take longer than the timeout of the one behind
	stuck := ordered("gated", "stuck", "a")
	stuck.Kind.Topic = "topic-counted"
	done := e.InBackground(stuck)
	e.AwaitWaiters(1)
	behind := ordered("counted", "behind", "a")
	behind.Kind.Timeout = 200 * time.Millisecond
	pgtest.WantFailed(t, e.Store.Run(t.Context(), behind), txn.CodeOverloaded, "an earlier transaction of this topic and shard key")
	e.Commit(ordered("counted", "other", "b"))
	release()
	pgtest.WantKind(t, pgtest.Wait(t, "stuck transaction", done), txn.OutcomeCommitted)
	if o := e.Commit(behind); o[0].Head {
		t.Error("the head is not the one that was stuck")
	}
}

// A row that takes the place of a fence gets its place in line, too.
func TestOrderedRowReplacesAFence(t *testing.T) {
	t.Parallel()
	e := counting(t)
	fenced := ordered("counted", "a1", "a")
	e.Decide(fenced)
	o := e.Commit(ordered("counted", "a1", "a"), pgtest.Outbox(ordered("counted", "a2", "a")))
	if !o[0].Head || e.Count(`txsvc.transactions WHERE ordered AND line IS NOT NULL`) != 2 {
		t.Errorf("head %t, want the row to stand in line", o[0].Head)
	}
	if e.Count(`txsvc.transactions WHERE outbox`) != 1 {
		t.Error("want one row without a half message")
	}
}
