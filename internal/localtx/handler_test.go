package localtx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// What a handler may do wrong never makes an answer untrue.
func TestHandlersThatMisbehave(t *testing.T) {
	t.Parallel()
	insert := func(ctx context.Context, tx pgx.Tx, in task.Input) error {
		_, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, in.ID)
		return err
	}
	tests := []struct {
		name    string
		handle  pgtest.Handler
		want    txn.OutcomeKind
		code    txn.Code
		detail  string
		timeout time.Duration
	}{
		{name: "panics", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "panicked: oops",
			handle: func(context.Context, pgx.Tx, task.Input) (any, error) { panic("oops") }},
		{name: "commits", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "for the service to do",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				return nil, errors.Join(insert(ctx, tx, in), tx.Commit(ctx))
			}},
		{name: "rolls back, as with defer", want: txn.OutcomeCommitted,
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				defer func() { _ = tx.Rollback(ctx) }()
				return nil, insert(ctx, tx, in)
			}},
		{name: "commits in SQL", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "for the service to do",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Exec(ctx, `COMMIT`)
				return nil, err
			}},
		{name: "commits behind the service's back", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "have no message",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Conn().Exec(ctx, `COMMIT`)
				return nil, err
			}},
		{name: "commits in SQL and refuses", want: txn.OutcomeRejected,
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Exec(ctx, `COMMIT`)
				return nil, errors.Join(err, &txn.Rejection{Message: "no"})
			}},
		{name: "rolls back in SQL", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "nothing was changed",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Exec(ctx, `ROLLBACK`)
				return nil, err
			}},
		{name: "passes over an error", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "passed over an error",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, _ = tx.Exec(ctx, `SELECT 1/0`)
				return nil, nil
			}},
		{name: "uses a savepoint for an error", want: txn.OutcomeCommitted,
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `SELECT 1/0`)
					return err
				})
				return nil, insert(ctx, tx, in)
			}},
		{name: "leaves rows open", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "left rows open",
			handle: func(ctx context.Context, tx pgx.Tx, _ task.Input) (any, error) {
				rows, err := tx.Query(ctx, `SELECT generate_series(1, 9)`)
				if err == nil {
					rows.Next()
				}
				return nil, err
			}},
		{name: "fails", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "nothing was changed: plainly wrong",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				return nil, errors.Join(insert(ctx, tx, in), errors.New("plainly wrong"))
			}},
		{name: "refuses", want: txn.OutcomeRejected,
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				return nil, errors.Join(insert(ctx, tx, in), &txn.Rejection{Message: "no"})
			}},
		{name: "gives what is no JSON", want: txn.OutcomeFailed, code: txn.CodeInternal, detail: "encoding the handler's result",
			handle: func(context.Context, pgx.Tx, task.Input) (any, error) { return func() {}, nil }},
		{name: "waits in the database", want: txn.OutcomeFailed, code: txn.CodeDatabaseUnavailable, detail: "longer than its timeout", timeout: 100 * time.Millisecond,
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
				return nil, err
			}},
		{name: "waits for something else", want: txn.OutcomeFailed, code: txn.CodeDatabaseUnavailable, detail: "longer than its timeout", timeout: 100 * time.Millisecond,
			handle: func(ctx context.Context, _ pgx.Tx, _ task.Input) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
		{name: "does not notice its time is over", want: txn.OutcomeFailed, code: txn.CodeDatabaseUnavailable, detail: "longer than its timeout", timeout: 100 * time.Millisecond,
			handle: func(ctx context.Context, _ pgx.Tx, _ task.Input) (any, error) {
				<-ctx.Done()
				return nil, nil
			}},
		{name: "is cut off", want: txn.OutcomeFailed, code: txn.CodeDatabaseUnavailable, detail: "nothing was changed",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
				return nil, err
			}},
		{name: "is cut off and passes over it", want: txn.OutcomeFailed, code: txn.CodeDatabaseUnavailable, detail: "nothing was changed",
			handle: func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
				_, _ = tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
				return nil, nil
			}},
	}
	e := pgtest.New(t, pgtest.WithTables(notes), pgtest.WithPrograms(func(add func(string, task.Program)) {
		for _, tt := range tests {
			add(tt.name, tt.handle)
		}
	}))
	e.Connected(len(tests)) // connecting could take longer than a test's timeout
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Second
			if tt.timeout > 0 {
				timeout = tt.timeout
			}
			a := pgtest.Attempt(tt.name, "tx "+tt.name, `{}`, timeout)
			o := e.Store.Run(context.Background(), a)
			if tt.want == txn.OutcomeFailed {
				pgtest.WantFailed(t, o, tt.code, tt.detail)
			} else {
				pgtest.WantKind(t, o, tt.want)
			}
			row, err := e.Store.Find(t.Context(), a.Request.ID)
			if stored := err == nil && !row.Abandoned; stored != (tt.want != txn.OutcomeFailed) {
				t.Errorf("row: got %+v, %v", row, err)
			}
			if n := e.Count(`notes WHERE id = $1`, a.Request.ID); tt.want != txn.OutcomeCommitted && n > 0 {
				t.Errorf("a transaction that did not commit changed something")
			}
			wantCleanConnections(t, e)
		})
	}
}

// A Planner's statements cannot pretend a commit either.
func TestPlannersThatEndTheTransaction(t *testing.T) {
	t.Parallel()
	insert := `INSERT INTO notes VALUES ($1)`
	e := pgtest.New(t, pgtest.WithTables(notes),
		pgtest.WithProgram("rolls back", pgtest.Statements(insert, `ROLLBACK`)), pgtest.WithProgram("rolls back and goes on", pgtest.Statements(insert, `ROLLBACK`, `SELECT 1`)),
		pgtest.WithProgram("commits", pgtest.Statements(insert, `COMMIT`)), pgtest.WithProgram("uses a savepoint", pgtest.Statements(`SAVEPOINT a`, insert, `ROLLBACK TO SAVEPOINT a`, insert)))
	for kind, want := range map[string]txn.OutcomeKind{
		"rolls back": txn.OutcomeFailed, "rolls back and goes on": txn.OutcomeFailed, "commits": txn.OutcomeFailed, "uses a savepoint": txn.OutcomeCommitted,
	} {
		o := e.Store.Run(t.Context(), pgtest.Attempt(kind, "tx "+kind, `{}`))
		if want == txn.OutcomeFailed {
			pgtest.WantFailed(t, o, txn.CodeInternal, "for the service to do")
		} else {
			pgtest.WantKind(t, o, want)
		}
		if n := e.Count(`notes WHERE id = $1`, "tx "+kind); (n == 1) != (want == txn.OutcomeCommitted) {
			t.Errorf("%s: got %d notes", kind, n)
		}
		wantCleanConnections(t, e)
	}
}

// wantCleanConnections: nothing is left of a transaction in the connections that the next one gets.
func wantCleanConnections(t *testing.T, e *pgtest.Env) {
	t.Helper()
	for _, conn := range e.Pool.AcquireAllIdle(t.Context()) {
		if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
			t.Errorf("an idle connection has the transaction status %c", status)
		}
		conn.Release()
	}
}

func TestBackendTerminatedWhileWaiting(t *testing.T) {
	t.Parallel()
	e := pgtest.New(t, pgtest.WithTables(pgtest.Gate), pgtest.WithProgram("planner", pgtest.Statements(`SELECT FROM gate FOR UPDATE`)), pgtest.WithProgram("handler", pgtest.Each(`SELECT FROM gate FOR UPDATE`)))
	e.Lock(`SELECT FROM gate FOR UPDATE`)
	for _, kind := range []string{"planner", "handler"} {
		done := e.InBackground(pgtest.Attempt(kind, "tx-"+kind, `{}`))
		e.AwaitWaiters(1)
		if !pgtest.Value[bool](e, `SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) {
			t.Fatal("no backend was terminated")
		}
		pgtest.WantFailed(t, pgtest.Wait(t, "outcome", done), txn.CodeDatabaseUnavailable, "nothing was changed")
	}
	if n := e.Count("txsvc.transactions"); n != 0 {
		t.Errorf("got %d rows, want none", n)
	}
}
