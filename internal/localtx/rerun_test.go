package localtx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/txn"
)

const pair = `CREATE TABLE pair (name text PRIMARY KEY, n int NOT NULL); INSERT INTO pair VALUES ('a', 0), ('b', 0)`

// crosswise is a Handler that locks one row, waits until another has the second, and then wants that, too: a deadlock.
func crosswise(first, second string, both *sync.WaitGroup, runs *runCounter) handler {
	return func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
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
	e := setup(t, withTables(pair), withProgram("ab", crosswise("a", "b", &both, &runs)), withProgram("ba", crosswise("b", "a", &both, &runs)))
	ab, ba := attempt("ab", "tx-ab", `{}`, 10*time.Second), attempt("ba", "tx-ba", `{}`, 10*time.Second)
	first, second := e.inBackground(ab), e.inBackground(ba)
	wantKind(t, wait(t, "outcome of ab", first), txn.OutcomeCommitted)
	wantKind(t, wait(t, "outcome of ba", second), txn.OutcomeCommitted)
	if n := runs.runs["tx-ab"] + runs.runs["tx-ba"]; n < 3 { // the victim may meet the other once more
		t.Errorf("got %d runs of the two, want 3 or more", n)
	}
	if n := e.count(`pair WHERE n = 2`); n != 2 {
		t.Errorf("got %d rows with both changes, want 2", n)
	}
	if e.find("tx-ab").MessageID != ab.Half.UniqKey || e.find("tx-ba").MessageID != ba.Half.UniqKey {
		t.Error("the rows name other half messages")
	}
}

// In SQL, deadlocks come by chance: many transactions with two orders of locks all commit.
func TestDeadlocksInSQL(t *testing.T) {
	t.Parallel()
	lock := func(name string) localtx.Template {
		return localtx.Template{Text: `UPDATE pair SET n = n + 1 WHERE name = '` + name + `' AND pg_sleep(0.005) IS NOT NULL`}
	}
	e := setup(t, withTables(pair),
		withProgram("ab", localtx.SQL{Statements: []localtx.Template{lock("a"), lock("b")}}),
		withProgram("ba", localtx.SQL{Statements: []localtx.Template{lock("b"), lock("a")}}))
	outcomes := make(chan txn.Outcome)
	for i := range 4 {
		go func() {
			outcomes <- e.store.Run(context.Background(), attempt([]string{"ab", "ba"}[i%2], "tx-"+string(rune('a'+i)), `{}`))
		}()
	}
	for range 4 {
		wantKind(t, wait(t, "outcome", outcomes), txn.OutcomeCommitted)
	}
	if n := e.count(`pair WHERE n = 4`); n != 2 {
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
	onCall := handler(func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
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
	e := setup(t, withTables(notes), withProgram("on call", isolated{onCall, pgx.Serializable}))
	first, second := e.inBackground(attempt("on call", "tx-1", `{}`)), e.inBackground(attempt("on call", "tx-2", `{}`))
	a, b := wait(t, "first outcome", first), wait(t, "second outcome", second)
	if a.Kind > b.Kind {
		a, b = b, a
	}
	wantKind(t, a, txn.OutcomeCommitted)
	wantKind(t, b, txn.OutcomeRejected)
	if n := runs.runs["tx-1"] + runs.runs["tx-2"]; n != 3 {
		t.Errorf("got %d runs of the two, want 3", n)
	}
}

func TestSQLIsolation(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(notes), withProgram("sql", localtx.SQL{
		Isolation:  pgx.RepeatableRead,
		Statements: []localtx.Template{{Text: `INSERT INTO notes VALUES (($1::text), current_setting('transaction_isolation'))`, Args: []string{"id"}}},
	}))
	wantKind(t, e.store.Run(t.Context(), attempt("sql", "tx-1", `{}`)), txn.OutcomeCommitted)
	if got := value[string](e, `SELECT key FROM notes`); got != "repeatable read" {
		t.Errorf("isolation level: got %s", got)
	}
}

func TestNeverSerializable(t *testing.T) {
	t.Parallel()
	var runs runCounter
	e := setup(t, withProgram("never", handler(func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
		runs.next(in.ID)
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		return nil, err
	})))
	wantFailed(t, e.store.Run(t.Context(), attempt("never", "tx-1", `{}`)), txn.CodeDatabaseUnavailable, "kept failing to serialize")
	if runs.runs["tx-1"] != 6 {
		t.Errorf("got %d runs, want 6", runs.runs["tx-1"])
	}
	if n := e.count("txsvc.transactions"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
}

// A change of the schema overtakes prepared statements; the next transaction prepares them anew.
func TestSchemaChange(t *testing.T) {
	t.Parallel()
	e := setup(t, withTables(notes), withProgram("reads", handler(func(ctx context.Context, tx pgx.Tx, _ localtx.Input) (any, error) {
		rows, err := tx.Query(ctx, `SELECT * FROM notes`)
		if err != nil {
			return nil, err
		}
		rows.Close()
		return len(rows.FieldDescriptions()), rows.Err()
	})))
	o := e.store.Run(t.Context(), attempt("reads", "tx-1", `{}`))
	wantKind(t, o, txn.OutcomeCommitted)
	sameJSON(t, "columns before", o.Transaction.Result, "5")
	e.exec(`ALTER TABLE notes ADD COLUMN more int`)
	o = e.store.Run(t.Context(), attempt("reads", "tx-2", `{}`))
	wantKind(t, o, txn.OutcomeCommitted)
	sameJSON(t, "columns after", o.Transaction.Result, "6")
}
