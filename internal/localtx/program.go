package localtx

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Input is what a local transaction is given.
type Input struct {
	ID          string
	ShardKey    string
	Payload     json.RawMessage
	LocalArg    json.RawMessage // nil when not given
	SelectorArg json.RawMessage // nil when not given
}

// Program is the local transaction of a kind: a Planner, a Handler or SQL.
type Program any

// Planner is a local transaction in Go whose statements and result are known before the database is asked: it runs in
// one round trip. Plan must be safe for concurrent use. An error that is a *txn.Rejection is stored as the answer;
// a *txn.Error is returned to the client; others are internal errors. In all three cases nothing is changed.
type Planner interface {
	Plan(in Input) (Plan, error)
}

// Plan is what a Planner wants done, in one database transaction.
type Plan struct {
	Statements []Statement
	Result     json.RawMessage // nil: null
}

// Statement is one SQL statement with its positional arguments.
type Statement struct {
	SQL  string
	Args []any
}

// Handler is a local transaction in Go that reads before it writes. It must do its work through tx, must not commit or
// roll back, and may be run again when PostgreSQL reports a serialization failure or a deadlock. Errors are as for
// Planner; PostgreSQL's errors should be returned as they come, wrapped or not. The result is encoded as JSON.
type Handler interface {
	Handle(ctx context.Context, tx pgx.Tx, in Input) (result any, err error)
}

// SQL is a local transaction from the configuration. Its statements run in one round trip.
type SQL struct {
	Statements []Template
	// Keep is the last statement rewritten so that it stores its first row, as JSON, as the result of the row; it takes the
	// id as one more argument and returns the result as text. Empty when the last statement returns no rows.
	Keep string
}

// Template is one statement whose arguments are named: id, shard_key, payload, local_arg or selector_arg.
type Template struct {
	Text string // with $1, $2, … in the order of Args, cast to text or jsonb
	Args []string
}

func (p SQL) bind(in Input) []Statement {
	statements := make([]Statement, len(p.Statements))
	for i, t := range p.Statements {
		statements[i] = t.bind(in)
	}
	if p.Keep != "" {
		last := &statements[len(statements)-1]
		last.SQL, last.Args = p.Keep, append(last.Args, in.ID)
	}
	return statements
}

func (t Template) bind(in Input) Statement {
	s := Statement{SQL: t.Text, Args: make([]any, len(t.Args), len(t.Args)+1)}
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
