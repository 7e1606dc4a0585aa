package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx"
)

// Handler makes a function a localtx.Planner whose plan is to run it.
type Handler func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error)

// Plan returns the plan to run the function.
func (h Handler) Plan(in localtx.Input) (localtx.Plan, error) {
	return localtx.Plan{Run: func(ctx context.Context, tx pgx.Tx) (any, error) { return h(ctx, tx, in) }}, nil
}

// Planner makes a function a localtx.Planner.
type Planner func(in localtx.Input) (localtx.Plan, error)

// Plan calls the function.
func (p Planner) Plan(in localtx.Input) (localtx.Plan, error) { return p(in) }

// Isolated returns p at an isolation level.
func Isolated(p localtx.Planner, level pgx.TxIsoLevel) Planner {
	return func(in localtx.Input) (localtx.Plan, error) {
		plan, err := p.Plan(in)
		plan.Isolation = level
		return plan, err
	}
}

// Statements is a Planner of fixed statements, with the id as $1 where they have it.
func Statements(texts ...string) Planner {
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

// Each is a handler that executes the statements one by one, with the id as $1 where they have it.
func Each(texts ...string) Handler {
	return func(ctx context.Context, tx pgx.Tx, in localtx.Input) (any, error) {
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
func SQL(t testing.TB, text string) localtx.SQL {
	t.Helper()
	p, err := localtx.ParseSQL(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Gate is a table whose only row a test locks to stop others there.
const Gate = `CREATE TABLE gate (n int CHECK (n >= 0)); INSERT INTO gate VALUES (0)`
