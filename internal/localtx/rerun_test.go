package localtx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

const pair = `CREATE TABLE pair (name text PRIMARY KEY, n int NOT NULL); INSERT INTO pair VALUES ('a', 0), ('b', 0)`

// crosswise is a Handler that locks one row, waits until another has the second, and then wants that, too: a deadlock.
func crosswise(first, second string, both *sync.WaitGroup, runs *runCounter) pgtest.Handler {
	return func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		run := runs.next(in.ID)
		if _, err := tx.Exec(ctx, `UPDATE pair SET n = n + 1 WHERE name = $1`, first); err != nil {
			return nil, err
		}
		if run == 1 {
			both.Done()
			both.Wait()
		}
		_, err := tx.Exec(ctx, `UPDATE pair SET n = n + 1 WHERE name = $1`, second)
		return run, err
	}
}

type runCounter struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *runCounter) next(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = make(map[string]int)
	}
	c.runs[id]++
	return c.runs[id]
}

// The victim of a deadlock is run again, with its half message. PostgreSQL looks for deadlocks only after a second, and on
// a busy machine later: the kind's timeout must not come first.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	var runs runCounter
	e := pgtest.New(t, pgtest.WithTables(pair), pgtest.WithProgram("ab", crosswise("a", "b", &both, &runs)), pgtest.WithProgram("ba", crosswise("b", "a", &both, &runs)))
	ab, ba := pgtest.Attempt("ab", "tx-ab", `{}`, 10*time.Second), pgtest.Attempt("ba", "tx-ba", `{}`, 10*time.Second)
	first, second := e.InBackground(ab), e.InBackground(ba)
	pgtest.WantKind(t, pgtest.Wait(t, "outcome of ab", first), txn.OutcomeCommitted)
	pgtest.WantKind(t, pgtest.Wait(t, "outcome of ba", second), txn.OutcomeCommitted)
	if n := runs.runs["tx-ab"] + runs.runs["tx-ba"]; n < 3 { // the victim may meet the other once more
		t.Errorf("got %d runs of the two, want 3 or more", n)
	}
	if n := e.Count(`pair WHERE n = 2`); n != 2 {
		t.Errorf("got %d rows with both changes, want 2", n)
	}
	if e.Find("tx-ab").MessageID != ab.Half.UniqKey || e.Find("tx-ba").MessageID != ba.Half.UniqKey {
		t.Error("the rows name other half messages")
	}
}

// In SQL, deadlocks come by chance: many transactions with two orders of locks all commit.
func TestDeadlocksInSQL(t *testing.T) {
	t.Parallel()
	lock := func(name string) task.Template {
		return task.Template{Text: `UPDATE pair SET n = n + 1 WHERE name = '` + name + `' AND pg_sleep(0.005) IS NOT NULL`}
	}
	e := pgtest.New(t, pgtest.WithTables(pair),
		pgtest.WithProgram("ab", task.SQL{Statements: []task.Template{lock("a"), lock("b")}}),
		pgtest.WithProgram("ba", task.SQL{Statements: []task.Template{lock("b"), lock("a")}}))
	outcomes := make(chan txn.Outcome)
	for i := range 4 {
		go func() {
			outcomes <- e.Store.Run(context.Background(), pgtest.Attempt([]string{"ab", "ba"}[i%2], "tx-"+string(rune('a'+i)), `{}`))
		}()
	}
	for range 4 {
		pgtest.WantKind(t, pgtest.Wait(t, "outcome", outcomes), txn.OutcomeCommitted)
	}
	if n := e.Count(`pair WHERE n = 4`); n != 2 {
		t.Errorf("got %d rows with all changes, want 2", n)
	}
}

// Two transactions that each read what the other writes: only run one after the other they are right. The second has a
// serialization failure, is run again, and sees the first.
func TestSerializationFailure(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	var runs runCounter
	onCall := pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		run := runs.next(in.ID)
		var others int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM notes`).Scan(&others); err != nil {
			return nil, err
		}
		if run == 1 {
			both.Done()
			both.Wait()
		}
		if others > 0 {
			return nil, &txn.Rejection{Message: "somebody is on call already"}
		}
		_, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, in.ID)
		return run, err
	})
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("on call", pgtest.Isolated(onCall, pgx.Serializable)))
	first, second := e.InBackground(pgtest.Attempt("on call", "tx-1", `{}`)), e.InBackground(pgtest.Attempt("on call", "tx-2", `{}`))
	a, b := pgtest.Wait(t, "first outcome", first), pgtest.Wait(t, "second outcome", second)
	if a.Kind > b.Kind {
		a, b = b, a
	}
	pgtest.WantKind(t, a, txn.OutcomeCommitted)
	pgtest.WantKind(t, b, txn.OutcomeRejected)
	if n := runs.runs["tx-1"] + runs.runs["tx-2"]; n != 3 {
		t.Errorf("got %d runs of the two, want 3", n)
	}
}

func TestSQLIsolation(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("sql", task.SQL{
		Isolation:  pgx.RepeatableRead,
		Statements: []task.Template{{Text: `INSERT INTO notes VALUES (($1::text), current_setting('transaction_isolation'))`, Args: []string{"id"}}},
	}))
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.Attempt("sql", "tx-1", `{}`)), txn.OutcomeCommitted)
	if got := pgtest.Value[string](e, `SELECT key FROM notes`); got != "repeatable read" {
		t.Errorf("isolation level: got %s", got)
	}
}

func TestNeverSerializable(t *testing.T) {
	t.Parallel()
	var runs runCounter
	e := pgtest.New(t, pgtest.WithProgram("never", pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		runs.next(in.ID)
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		return nil, err
	})))
	pgtest.WantFailed(t, e.Store.Run(t.Context(), pgtest.Attempt("never", "tx-1", `{}`)), txn.CodeDatabaseUnavailable, "kept failing to serialize")
	if runs.runs["tx-1"] != 6 {
		t.Errorf("got %d runs, want 6", runs.runs["tx-1"])
	}
	if n := e.Count("txsvc.transactions"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
}

// A change of the schema overtakes prepared statements; the next transaction prepares them anew.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithProgram("reads", pgtest.Handler(func(ctx context.Context, tx pgx.Tx, _ task.Input) (any, error) {
		rows, err := tx.Query(ctx, `SELECT * FROM notes`)
		if err != nil {
			return nil, err
		}
		rows.Close()
		return len(rows.FieldDescriptions()), rows.Err()
	})))
	o := e.Store.Run(t.Context(), pgtest.Attempt("reads", "tx-1", `{}`))
	pgtest.WantKind(t, o, txn.OutcomeCommitted)
	sameJSON(t, "columns before", o.Transaction.Result, "5")
	e.Exec(`ALTER TABLE notes ADD COLUMN more int`)
	o = e.Store.Run(t.Context(), pgtest.Attempt("reads", "tx-2", `{}`))
	pgtest.WantKind(t, o, txn.OutcomeCommitted)
	sameJSON(t, "columns after", o.Transaction.Result, "6")
}
