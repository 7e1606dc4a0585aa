package localtx_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// A result that is larger than the kind's limit is refused, nothing is committed, and the id may be tried again, whatever
// the local transaction is.
func TestResultLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	text := strings.Repeat("x", limit)
	sql, err := task.ParseSQL(`INSERT INTO notes VALUES (@id); SELECT repeat('x', (@payload->>'n')::int) AS r`)
	if err != nil {
		t.Fatal(err)
	}
	size := func(in task.Input) (n int, err error) {
		var payload struct{ N int }
		err = json.Unmarshal(in.Payload, &payload)
		return payload.N, err
	}
	e := pgtest.New(t, pgtest.WithTables(`CREATE TABLE notes (id text)`), pgtest.WithProgram("sql", sql),
		pgtest.WithProgram("planner", pgtest.Planner(func(in task.Input) (task.Plan, error) {
			n, err := size(in)
			return task.Plan{
				Statements: []task.Statement{{SQL: `INSERT INTO notes VALUES ($1)`, Args: []any{in.ID}}},
				Result:     json.RawMessage(`{"r":"` + text[:n] + `"}`),
			}, err
		})),
		pgtest.WithProgram("handler", pgtest.Handler(func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
			n, err := size(in)
			_, execErr := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, in.ID)
			return map[string]string{"r": text[:n]}, errors.Join(err, execErr)
		})))
	const around = len(`{"r":""}`)
	for _, kind := range []string{"sql", "planner", "handler"} {
		for _, fenced := range []bool{false, true} { // in the place of a fence, statements go one by one
			id := fmt.Sprint(kind, fenced)
			a := pgtest.Attempt(kind, id, fmt.Sprintf(`{"n": %d}`, limit-around+1))
			if fenced {
				e.Decide(pgtest.Attempt(kind, id, `{}`))
			}
			o := e.Store.Run(t.Context(), a)
			pgtest.WantFailed(t, o, txn.CodeRejected, "the result has 65537 bytes, at most 65536 are allowed (result_limit); nothing was changed")
			if err, ok := errors.AsType[*txn.Error](o.Err); !ok || err.Final || err.Rejection.SQLState != "" {
				t.Errorf("%s: got %+v, want a refusal that is not final", id, o.Err)
			}
			if n := e.Count(`notes WHERE id = $1`, id) + e.Count(`txsvc.transactions WHERE id = $1 AND NOT abandoned`, id); n != 0 {
				t.Errorf("%s: something was committed", id)
			}
			fits := pgtest.Attempt(kind, id, fmt.Sprintf(`{"n": %d}`, limit-around))
			o = e.Store.Run(t.Context(), fits)
			pgtest.WantKind(t, o, txn.OutcomeCommitted)
			if len(o.Transaction.Result) != limit {
				t.Errorf("%s: the result has %d bytes, want %d", id, len(o.Transaction.Result), limit)
			}
			if diff := cmp.Diff(o.Transaction, e.Find(id)); diff != "" {
				t.Errorf("%s: Find differs (-outcome +found):\n%s", id, diff)
			}
		}
	}
	more := pgtest.Attempt("sql", "more", `{"n": 70000}`)
	more.Kind.ResultLimit = 1 << 20
	pgtest.WantKind(t, e.Store.Run(t.Context(), more), txn.OutcomeCommitted)
}

// Only the first row is made JSON, however many there are; they are read all the same.
func TestResultIsTheFirstRow(t *testing.T) {
	t.Parallel()
	sql, err := task.ParseSQL(`SELECT repeat('x', 20000) AS r, nextval('reads') AS n FROM generate_series(1, 2000)`)
	if err != nil {
		t.Fatal(err)
	}
	e := pgtest.New(t, pgtest.WithTables(`CREATE SEQUENCE reads`), pgtest.WithProgram("sql", sql))
	o := e.Store.Run(t.Context(), pgtest.Attempt("sql", "tx-1", `{}`))
	pgtest.WantKind(t, o, txn.OutcomeCommitted)
	if want := `{"r":"` + strings.Repeat("x", 20000) + `","n":1}`; string(o.Transaction.Result) != want {
		t.Errorf("got %.40s … of %d bytes", o.Transaction.Result, len(o.Transaction.Result))
	}
	if n := pgtest.Value[int](e, `SELECT last_value FROM reads`); n != 2000 {
		t.Errorf("%d rows were read, want all", n)
	}
}

// A result that an earlier version has stored is not read when it is larger than any can be now.
func TestResultThatIsTooLargeToRead(t *testing.T) {
	t.Parallel()
	sql, err := task.ParseSQL(`SELECT 1 AS n`)
	if err != nil {
		t.Fatal(err)
	}
	e := pgtest.New(t, pgtest.WithProgram("sql", sql))
	a := pgtest.Attempt("sql", "tx-1", `{}`)
	pgtest.WantKind(t, e.Store.Run(t.Context(), a), txn.OutcomeCommitted)
	e.Exec(`UPDATE txsvc.transactions SET result = to_json(repeat('x', 5000000))`)
	if got := e.Find("tx-1"); got.Result != nil || got.ResultTooLarge != 5000002 {
		t.Errorf("got a result of %d bytes and %d as its size, want none and 5000002", len(got.Result), got.ResultTooLarge)
	}
	pgtest.WantKind(t, e.Store.Run(t.Context(), pgtest.SameRequest(a)), txn.OutcomeTaken)
}

// A transaction is decided when its statements have ended, not when they begin.
func TestDecidedAtTheEnd(t *testing.T) {
	t.Parallel()
	const slow = 300 * time.Millisecond
	sql, err := task.ParseSQL(`SELECT pg_sleep(0.3), 1 AS n`)
	if err != nil {
		t.Fatal(err)
	}
	e := pgtest.New(t, pgtest.WithProgram("sql", sql), pgtest.WithProgram("handler", pgtest.Each(`SELECT pg_sleep(0.3)`)))
	for _, kind := range []string{"sql", "handler"} {
		began := time.Now()
		o := e.Store.Run(t.Context(), pgtest.Attempt(kind, kind, `{}`))
		pgtest.WantKind(t, o, txn.OutcomeCommitted)
		// The two clocks that take part may run apart a little.
		if at := o.Transaction.DecidedAt; at.Sub(began) < slow-10*time.Millisecond || at.After(time.Now().Add(10*time.Millisecond)) {
			t.Errorf("%s: decided %s after it began, want %s or more, and not later than now", kind, at.Sub(began), slow)
		}
		if diff := cmp.Diff(o.Transaction, e.Find(kind)); diff != "" {
			t.Errorf("%s: Find differs (-outcome +found):\n%s", kind, diff)
		}
	}
}
