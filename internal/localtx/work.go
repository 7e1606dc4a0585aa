package localtx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/txn"
)

// work is a program with its input: what runs have to do.
type work struct {
	begin      string
	snapshot   bool                                                          // what is seen is what was there at the first statement
	handle     func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) // nil: the statements are all
	statements []Statement
	result     json.RawMessage
	kept       bool // the last statement writes result and time of the decision into the row, and returns them
}

func inputOf(a *txn.Attempt) Input {
	return Input{
		ID: a.Request.ID, ShardKey: a.Request.ShardKey, Payload: a.Request.Payload,
		LocalArg: a.Request.LocalArg, SelectorArg: a.Request.SelectorArg, Parsed: a.Request.Parsed,
	}
}

// plan finds out what there is to do, without the database.
func plan(p Program, in Input, resultLimit int) (w work, err error) {
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
		w.statements, w.result, level = plan.Statements, plan.Result, plan.Isolation
		if plan.Run != nil {
			w.handle = func(ctx context.Context, tx pgx.Tx) (json.RawMessage, error) {
				result, err := runSafely(ctx, plan.Run, tx)
				if err == nil {
					err = checkResult(result, resultLimit)
				}
				return result, err
			}
		}
	case SQL:
		w.statements, w.kept, level = p.bind(in, resultLimit), p.Keep != "", p.Isolation
	default:
		return w, fmt.Errorf("a program of type %T cannot be run", p)
	}
	w.begin, w.snapshot = "BEGIN", level == pgx.RepeatableRead || level == pgx.Serializable
	if level != "" { // it cannot be set later: the row comes first
		w.begin += " ISOLATION LEVEL " + string(level)
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

// refused answers for a Planner that refused, or failed, before the database was asked.
func (s *Store) refused(ctx context.Context, a *txn.Attempt, err error) txn.Outcome {
	if rejection, ok := errors.AsType[*txn.Rejection](err); ok {
		return s.refuse(ctx, a, rejection)
	}
	if e, ok := errors.AsType[*txn.Error](err); ok {
		return failed(e)
	}
	return failed(&txn.Error{Code: txn.CodeInternal, Detail: detailFailed, Cause: err})
}

// checkResult refuses a result that is larger than the kind's limit.
func checkResult(result json.RawMessage, limit int) error {
	if len(result) <= limit {
		return nil
	}
	return txn.Refused(&txn.Rejection{Message: fmt.Sprintf("the result has %d bytes, at most %d are allowed (result_limit)", len(result), limit)}, nil)
}

func (p SQL) bind(in Input, resultLimit int) []Statement {
	statements := make([]Statement, len(p.Statements))
	for i, t := range p.Statements {
		statements[i] = t.bind(in)
	}
	if p.Keep != "" {
		last := &statements[len(statements)-1]
		last.SQL, last.Args = p.Keep, append(last.Args, in.ID, resultLimit)
	}
	return statements
}

func (t Template) bind(in Input) Statement {
	s := Statement{SQL: t.Text, Args: make([]any, len(t.Args), len(t.Args)+2)}
	for i, name := range t.Args {
		switch name {
		case "id":
			s.Args[i] = in.ID
		case "shard_key":
			s.Args[i] = in.ShardKey
		case "payload":
			s.Args[i] = jsonArg(in.Payload)
		case "local_arg":
			s.Args[i] = jsonArg(in.LocalArg)
		case "selector_arg":
			s.Args[i] = jsonArg(in.SelectorArg)
		}
	}
	return s
}

// jsonArg is nil (SQL NULL) for JSON that was not given.
func jsonArg(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return string(raw)
}
