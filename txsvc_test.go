package txsvc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

type planFunc func(Input) (Plan, error)

func (f planFunc) Plan(in Input) (Plan, error) { return f(in) }

// withSchema is a handler with a schema.
type withSchema struct {
	planFunc
	schema Schema
}

func (h withSchema) Schema() Schema { return h.schema }

// selectFunc is a selector in a test.
type selectFunc func([]Queue, SelectorInput) (Choice, error)

func (f selectFunc) Select(queues []Queue, in SelectorInput) (Choice, error) { return f(queues, in) }

func (selectFunc) ByShardKey() bool { return true }

func nothing(Input) (Plan, error) { return Plan{}, nil }

func TestOptionsThatAreWrong(t *testing.T) {
	handler, making := planFunc(nothing), func(Options) (Selector, error) { return nil, errors.New("not called") }
	for want, options := range map[string][]Option{
		`two handlers have the name "a"`:                               {WithHandler("a", handler), WithHandler("a", handler)},
		`the handler "a" is nil`:                                       {WithHandler("a", nil)},
		`a handler of type txsvc.planFunc has no name`:                 {WithHandler("", handler)},
		`the handler "a": its JSON Schema: `:                           {WithHandler("a", withSchema{nothing, Schema{JSON: []byte(`{"type": 1}`)}})},
		`two types of selectors have the name "geo"`:                   {WithSelector("geo", making), WithSelector("geo", making)},
		`own selector type "hash": this is the name of a shipped type`: {WithSelector("hash", making)},
		`own selector type "Geo": the name has small letters`:          {WithSelector("Geo", making)},
		`own selector type "geo": there is no factory`:                 {WithSelector("geo", nil)},
	} {
		if _, err := codeOf(options); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	code, err := codeOf([]Option{WithHandler("a", handler), WithSelector("geo", making)})
	if _, own := code.Selectors.Has("geo"); err != nil || len(code.Handlers) != 1 || !own || len(code.OpenAPI) == 0 {
		t.Errorf("got %+v, %v, want a handler, a type of selectors and the contract", code, err)
	}
}

// TestPlansReachTheService: what a handler returns is what the service runs, and its errors are those that the service knows.
func TestPlansReachTheService(t *testing.T) {
	in := task.Input{ID: "tx-1", ShardKey: "k", Payload: json.RawMessage(`{}`), Parsed: 7}
	plan, err := program{planFunc(func(in Input) (Plan, error) {
		return Plan{Statements: []Statement{{SQL: "SELECT $1", Args: []any{in.ID, in.Parsed}}}, Result: map[string]int{"n": 1}, Isolation: pgx.Serializable}, nil
	})}.Plan(in)
	if err != nil || string(plan.Result) != `{"n":1}` || plan.Isolation != pgx.Serializable || len(plan.Statements) != 1 || plan.Statements[0].Args[1] != 7 {
		t.Errorf("got %+v, %v", plan, err)
	}
	rejected := func(err error) bool {
		r, ok := errors.AsType[*txn.Rejection](err)
		return ok && r.Message == "no"
	}
	if _, err = (program{planFunc(func(Input) (Plan, error) { return Plan{}, &Rejection{Message: "no"} })}).Plan(in); !rejected(err) {
		t.Errorf("got %v, want the rejection", err)
	}
	plan, err = program{planFunc(func(Input) (Plan, error) {
		return Plan{Run: func(context.Context, pgx.Tx) (any, error) {
			return nil, errors.Join(errors.New("also"), &Rejection{Message: "no"})
		}}, nil
	})}.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), nil); !rejected(err) {
		t.Errorf("got %v, want the rejection", err)
	}
	_, err = program{planFunc(func(Input) (Plan, error) {
		return Plan{Result: 1, Run: func(context.Context, pgx.Tx) (any, error) { return nil, nil }}, nil
	})}.Plan(in)
	if err == nil {
		t.Error("a plan with both Run and Result is taken")
	}
}

// TestParsedPayloadsAreNotCheckedAgain: a payload that Parse takes reaches Plan as it was parsed; others are for JSON.
func TestParsedPayloadsAreNotCheckedAgain(t *testing.T) {
	schema, err := schemaOf(withSchema{nothing, Schema{
		JSON:  []byte(`{"type": "object"}`),
		Parse: func(payload json.RawMessage) (any, bool) { return "parsed", string(payload) == `{}` },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if value, ok := schema.(txn.Parser).Parse(json.RawMessage(`{}`)); !ok || value != "parsed" {
		t.Errorf("got %v, %t", value, ok)
	}
	if wrong := schema.Validate(json.RawMessage(`[]`)); len(wrong) != 1 {
		t.Errorf("got %v, want one mistake", wrong)
	}
}

// TestSelectorsThatFail: a mistake in a user's selector is answered 500 and names the selector; a refusal is told as it is.
func TestSelectorsThatFail(t *testing.T) {
	queues := []txn.Queue{{Broker: "a", ID: 0}, {Broker: "a", ID: 1}}
	for name, tt := range map[string]struct {
		f    selectFunc
		code txn.Code
	}{
		"panics":        {func([]Queue, SelectorInput) (Choice, error) { panic("no") }, txn.CodeInternal},
		"foreign queue": {func([]Queue, SelectorInput) (Choice, error) { return Choice{Queue: Queue{"b", 7}}, nil }, txn.CodeInternal},
		"fails":         {func([]Queue, SelectorInput) (Choice, error) { return Choice{}, errors.New("no") }, txn.CodeInternal},
		"refuses":       {func([]Queue, SelectorInput) (Choice, error) { return Choice{}, Invalid(FieldError{"/shard_key", "no"}) }, txn.CodeInvalidRequest},
		"has no queue":  {func([]Queue, SelectorInput) (Choice, error) { return Choice{}, NoQueue("no") }, txn.CodeBrokerUnavailable},
		"chooses": {func(queues []Queue, in SelectorInput) (Choice, error) {
			defer clear(queues) // the list is the selector's own
			return Choice{Queue: queues[1], Reason: in.Header("X")}, nil
		}, ""},
	} {
		code, err := codeOf([]Option{WithSelector("mine", func(Options) (Selector, error) { return tt.f, nil })})
		if err != nil {
			t.Fatal(err)
		}
		s, err := code.Selectors.New(selector.Spec{Type: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		route, err := s.Select(queues, txn.SelectorInput{ShardKey: "k"})
		if tt.code == "" {
			if err != nil || route.Queue != queues[1] || queues[1].ID != 1 || route.Selector != "mine" || selector.SplitsKeys(s) != "" {
				t.Errorf("%s: got %+v, %v", name, route, err)
			}
		} else if err == nil || txn.CodeOf(err) != tt.code {
			t.Errorf("%s: got %v, want %s", name, err, tt.code)
		}
	}
}
