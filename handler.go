package txsvc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

// Handler is a local transaction in Go.
//
// Plan says what to do for a request, without the database. It must be safe for concurrent use. An error ends the transaction
// before anything is changed: a [Rejection] is stored, and the same id always gets it as the answer (422); [Invalid] is
// answered 400; any other error is answered 500 and logged.
type Handler interface {
	Plan(in Input) (Plan, error)
}

// Input is the request, as far as the local transaction sees it.
type Input struct {
	ID          string          // of the transaction; unique, and the TX_ID of the message
	ShardKey    string          // routes the message
	Payload     json.RawMessage // as it was sent; the body of the message
	LocalArg    json.RawMessage // for the local transaction only; nil when not given
	SelectorArg json.RawMessage // nil when not given
	Parsed      any             // what Schema.Parse made of the payload; nil without it
}

// Plan is what a handler does in its transaction: either Statements, or Run. The service adds its own row to the same
// transaction, and commits or rolls back.
type Plan struct {
	// Statements run in this order, in one round trip, so none can depend on the rows that another returns. When one fails, those
	// behind it do not run, and all is rolled back.
	Statements []Statement
	// Result is encoded as JSON and becomes the result in the answer. The kind's result_limit bounds its size.
	Result any

	// Run does the work itself, where it has to read before it writes. It must use tx for everything, and neither commit nor
	// roll back. Its result replaces Result. Errors are as those of Plan; errors of PostgreSQL should be returned as they
	// come, wrapped or not, because the service answers by their SQLSTATE. After a serialization failure or a deadlock the
	// transaction is rolled back and Run is called again. Each statement ends with the kind's
	// timeout, and ctx ends 2 seconds after it.
	Run func(ctx context.Context, tx pgx.Tx) (result any, err error)

	// Isolation is the isolation level; empty means the database's default.
	Isolation pgx.TxIsoLevel
}

// Statement is one SQL statement with its positional arguments ($1, $2, …).
type Statement struct {
	SQL  string
	Args []any
}

// Rejection is the error of a handler that refuses a request for a business reason. The transaction is rolled back, and the
// rejection is stored: the same id gets the same answer again, 422 with the code rejected.
type Rejection struct {
	Message string // for the client
}

// Error returns the message.
func (r *Rejection) Error() string { return r.Message }

// SchemaHandler is a [Handler] that says which payloads it takes. Others are answered 400 before anything is done, with all
// that is wrong. A schema that the configuration gives a kind replaces the handler's for this kind.
type SchemaHandler interface {
	Handler
	Schema() Schema
}

// Schema says which payloads a handler takes.
type Schema struct {
	// JSON is a JSON Schema, draft 2020-12 unless it says otherwise. It is shown to clients.
	JSON []byte

	// Parse saves reading a payload twice; it may be nil. It is called before the check by JSON. It returns a value, which Plan
	// gets as Input.Parsed, and true, and then the payload is not checked by JSON; or it returns false, for each payload that JSON
	// refuses and for all that Parse does not want to judge. It must be safe for concurrent use.
	Parse func(payload json.RawMessage) (value any, ok bool)
}

// schemaOf returns the handler's schema; nil when it has none.
func schemaOf(h Handler) (txn.Schema, error) {
	s, ok := h.(SchemaHandler)
	if !ok {
		return nil, nil //nolint:nilnil // the kind has no schema then
	}
	schema := s.Schema()
	compiled, err := payload.CompileText(schema.JSON)
	if err != nil {
		return nil, fmt.Errorf("its JSON Schema: %w", err)
	}
	if schema.Parse == nil {
		return compiled, nil
	}
	return parser{compiled, schema.Parse}, nil
}

// parser implements txn.Parser.
type parser struct {
	*payload.Schema
	parse func(json.RawMessage) (any, bool)
}

// Parse reads the payload.
func (p parser) Parse(payload json.RawMessage) (any, bool) { return p.parse(payload) }

// program makes a Handler a task.Planner.
type program struct{ handler Handler }

// Plan asks the handler.
func (p program) Plan(in task.Input) (task.Plan, error) {
	plan, err := p.handler.Plan(Input(in))
	if err != nil {
		return task.Plan{}, inner(err)
	}
	made := task.Plan{Isolation: plan.Isolation}
	if run := plan.Run; run != nil {
		if len(plan.Statements) > 0 || plan.Result != nil {
			return made, errors.New("the plan has both Run and Statements or Result")
		}
		made.Run = func(ctx context.Context, tx pgx.Tx) (any, error) {
			result, err := run(ctx, tx)
			return result, inner(err)
		}
		return made, nil
	}
	made.Statements = make([]task.Statement, len(plan.Statements))
	for i, s := range plan.Statements {
		made.Statements[i] = task.Statement(s)
	}
	switch result := plan.Result.(type) {
	case nil:
	case json.RawMessage:
		made.Result = result
	default:
		if made.Result, err = json.Marshal(result); err != nil {
			return made, fmt.Errorf("encoding the handler's result: %w", err)
		}
	}
	return made, nil
}

// inner adds to a Rejection the one that the service knows.
func inner(err error) error {
	if r, ok := errors.AsType[*Rejection](err); ok {
		return errors.Join(err, &txn.Rejection{Message: r.Message})
	}
	return err
}
