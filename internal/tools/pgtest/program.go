package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
)

// Handler makes a function a task.Planner whose plan is to run it.
type Handler func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error)

// Plan returns the plan to run the function.
func (h Handler) Plan(in task.Input) (task.Plan, error) {
	return task.Plan{Run: func(ctx context.Context, tx pgx.Tx) (any, error) { return h(ctx, tx, in) }}, nil
}

// Planner makes a function a task.Planner.
type Planner func(in task.Input) (task.Plan, error)

// Plan calls the function.
func (p Planner) Plan(in task.Input) (task.Plan, error) { return p(in) }

// Isolated returns p at an isolation level.
func Isolated(p task.Planner, level pgx.TxIsoLevel) Planner {
	return func(in task.Input) (task.Plan, error) {
		plan, err := p.Plan(in)
		plan.Isolation = level
		return plan, err
	}
}

// Statements is a Planner of fixed statements, with the id as $1 where they have it.
func Statements(texts ...string) Planner {
	return func(in task.Input) (task.Plan, error) {
		var plan task.Plan
		for _, text := range texts {
			s := task.Statement{SQL: text}
			if strings.Contains(text, "$1") {
				s.Args = []any{in.ID}
			}
			plan.Statements = append(plan.Statements, s)
		}
		return plan, nil
	}
}

// Each is a handler that executes the statements one by one, with the id as $1 where they have it.
func Each(texts ...string) Handler {
	return func(ctx context.Context, tx pgx.Tx, in task.Input) (any, error) {
		plan, _ := Statements(texts...)(in)
		for _, s := range plan.Statements {
			if _, err := tx.Exec(ctx, s.SQL, s.Args...); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// SQL reads a local transaction from its text.
func SQL(t testing.TB, text string) task.SQL {
	t.Helper()
	p, err := task.ParseSQL(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Gate is a table whose only row a test locks to stop others there.
const Gate = `CREATE TABLE gate (n int CHECK (n >= 0)); INSERT INTO gate VALUES (0)`

// LateGate is Gate, and a table whose rows make their transaction wait for the gate at COMMIT, when its own row is written
// already. Then the row's column n is inserted into the gate, unless it is null: -1 is refused.
const LateGate = Gate + `; CREATE TABLE late (n int);
	CREATE FUNCTION wait_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM FROM gate FOR UPDATE;
		IF NEW.n = 0 THEN PERFORM 1 / NEW.n; END IF;
		IF NEW.n < 0 THEN INSERT INTO gate VALUES (NEW.n); END IF;
		RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER wait_late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_late()`
