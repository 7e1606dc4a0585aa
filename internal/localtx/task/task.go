package task

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/txn"
)

// Task is a program with its input: the work of each run.
type Task struct {
	Begin      string                                                        // BEGIN, with the isolation level
	Snapshot   bool                                                          // all statements see the state at the first one
	Handle     func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) // nil: the statements are all
	Statements []Statement
	Result     json.RawMessage // of a Planner without Run
	Last       *Last           // the last statement's first row is the result; nil: it is not
	ResultMost int             // the result has at most so many bytes
}

// InputOf returns the input of an attempt.
func InputOf(a *txn.Attempt) Input {
	return Input{
		ID: a.Request.ID, ShardKey: a.Request.ShardKey, Payload: a.Request.Payload,
		LocalArg: a.Request.LocalArg, SelectorArg: a.Request.SelectorArg, Parsed: a.Request.Parsed,
	}
}

// New makes the task of a program and its input, without the database. A result of more bytes than the limit is refused.
// The errors are those of Planner.
func New(p Program, in Input, resultLimit int) (w Task, err error) {
	var level pgx.TxIsoLevel
	switch p := p.(type) {
	case Planner:
		plan, err := planSafely(p, in)
		if err == nil {
			err = checkResult(plan.Result, resultLimit)
		}
		if err != nil {
			return w, err
		}
		w.Statements, w.Result, level = plan.Statements, plan.Result, plan.Isolation
		if plan.Run != nil {
			w.Handle = func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
				result, err := runSafely(ctx, plan.Run, tx)
				if err == nil {
					err = checkResult(result, resultLimit)
				}
				return result, err
			}
		}
	case SQL:
		w.Statements, w.Last, w.ResultMost, level = p.bind(in), p.Last, resultLimit, p.Isolation
	default:
		return w, fmt.Errorf("a program of type %T cannot be run", p)
	}
	w.Begin, w.Snapshot = "BEGIN", level == pgx.RepeatableRead || level == pgx.Serializable
	if level != "" { // it cannot be set later: the row comes first
		w.Begin += " ISOLATION LEVEL " + string(level)
	}
	return w, nil
}

func planSafely(p Planner, in Input) (plan Plan, err error) {
	defer recovered(&err)
	return p.Plan(in)
}

func runSafely(ctx context.Context, run func(context.Context, pgx.Tx) (any, error), tx pgx.Tx) (raw json.RawMessage, err error) {
	defer recovered(&err)
	result, err := run(ctx, tx)
	if err != nil || result == nil {
		return nil, err
	}
	raw, err = json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encoding the handler's result: %w", err)
	}
	return raw, nil
}

// recovered turns a panic of a handler into an error, for the log.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the handler panicked: %v\n%s", v, debug.Stack())
	}
}

// checkResult refuses a result that is larger than the kind's limit.
func checkResult(result json.RawMessage, limit int) error {
	if len(result) <= limit {
		return nil
	}
	return txn.Refused(&txn.Rejection{Message: fmt.Sprintf("the result has %d bytes, at most %d are allowed (result_limit)", len(result), limit)}, nil)
}

func (p SQL) bind(in Input) []Statement {
	statements := make([]Statement, len(p.Statements))
	for i, t := range p.Statements {
		statements[i] = t.bind(in)
	}
	return statements
}

func (t Template) bind(in Input) Statement {
	s := Statement{SQL: t.Text, Args: make([]any, len(t.Args), len(t.Args)+20)}
	for i, name := range t.Args {
		switch name {
		case "id":
			s.Args[i] = in.ID
		case "shard_key":
			s.Args[i] = in.ShardKey
		case "payload":
			s.Args[i] = rows.JSON(in.Payload)
		case "local_arg":
			s.Args[i] = rows.JSON(in.LocalArg)
		case "selector_arg":
			s.Args[i] = rows.JSON(in.SelectorArg)
		}
	}
	return s
}
