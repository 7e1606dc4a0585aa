package task

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Input is the input of a local transaction.
type Input struct {
	ID          string
	ShardKey    string
	Payload     json.RawMessage
	LocalArg    json.RawMessage // nil when not given
	SelectorArg json.RawMessage // nil when not given
	Parsed      any             // see txn.Request
}

// Program is the local transaction of a kind: a Planner or SQL.
type Program any

// Planner is a local transaction in Go. Plan says what is to be done, without the database; it must be safe for concurrent
// use. An error that is a *txn.Rejection is stored as the answer; a *txn.Error is returned to the client; others are
// internal errors. In all three cases nothing is changed.
type Planner interface {
	Plan(in Input) (Plan, error)
}

// Plan is the task of one database transaction: the statements, in one round trip, or Run.
type Plan struct {
	Statements []Statement
	Result     json.RawMessage // nil: null

	// Run reads before it writes. It must do its work through tx, must not commit or roll back, and may be run again when
	// PostgreSQL reports a serialization failure or a deadlock. Errors are as for Planner; PostgreSQL's errors should be
	// returned as they come, wrapped or not. The result is encoded as JSON.
	Run func(ctx context.Context, tx pgx.Tx) (result any, err error)

	// Isolation is the isolation level; empty: the database's default. At pgx.RepeatableRead and pgx.Serializable the
	// transaction is run again when PostgreSQL reports a serialization failure.
	Isolation pgx.TxIsoLevel
}

// Statement is one SQL statement with its positional arguments.
type Statement struct {
	SQL  string
	Args []any
}

// SQL is a local transaction from the configuration. Its statements run in one round trip.
type SQL struct {
	Statements []Template
	Isolation  pgx.TxIsoLevel // empty: the database's default
	Last       *Last          // of the last statement; nil when that returns no rows
}

// Template is one statement whose arguments are named: id, shard_key, payload, local_arg or selector_arg.
type Template struct {
	Text string // with $1, $2, … in the order of Args, cast to text or jsonb
	Args []string
}
