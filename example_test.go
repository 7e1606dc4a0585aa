package txsvc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc"
)

// Booking is a local transaction whose statements are known beforehand.
type Booking struct{}

func (Booking) Plan(in txsvc.Input) (txsvc.Plan, error) {
	var b struct {
		Room   string `json:"room"`
		Nights int    `json:"nights"`
	}
	if err := json.Unmarshal(in.Payload, &b); err != nil {
		return txsvc.Plan{}, txsvc.Invalid(txsvc.FieldError{Pointer: "/payload", Message: "must be an object with room and nights"})
	}
	if b.Nights > 30 {
		return txsvc.Plan{}, &txsvc.Rejection{Message: "stays have at most 30 nights"}
	}
	return txsvc.Plan{
		Statements: []txsvc.Statement{
			{SQL: `INSERT INTO bookings (id, room, nights) VALUES ($1, $2, $3)`, Args: []any{in.ID, b.Room, b.Nights}},
		},
		Result: map[string]string{"booking": in.ID},
	}, nil
}

// Bookings of a room go to the queue that the room's floor has.
func Example() {
	// A main function calls txsvc.Main with this option; the configuration then says local: {handler: booking}.
	_ = txsvc.WithHandler("booking", Booking{})

	// A handler is tested without a database.
	for _, payload := range []string{`{"room": "2-14", "nights": 3}`, `{"room": "2-14", "nights": 90}`, `[]`} {
		plan, err := Booking{}.Plan(txsvc.Input{ID: "b-1", ShardKey: "2-14", Payload: json.RawMessage(payload)})
		fmt.Println(len(plan.Statements), plan.Result, err)
	}
	// Output:
	// 1 map[booking:b-1] <nil>
	// 0 <nil> stays have at most 30 nights
	// 0 <nil> invalid_request: /payload: must be an object with room and nights
}

// A handler that reads before it writes returns a plan with Run.
func ExamplePlan_run() {
	plan := func(in txsvc.Input) (txsvc.Plan, error) {
		return txsvc.Plan{Run: func(ctx context.Context, tx pgx.Tx) (any, error) {
			var free int
			if err := tx.QueryRow(ctx, `SELECT free FROM rooms WHERE id = $1 FOR UPDATE`, in.ShardKey).Scan(&free); err != nil {
				return nil, err // as it comes: the service knows what PostgreSQL's errors mean
			}
			if free == 0 {
				return nil, &txsvc.Rejection{Message: "the room is taken"}
			}
			_, err := tx.Exec(ctx, `UPDATE rooms SET free = free - 1 WHERE id = $1`, in.ShardKey)
			return map[string]int{"free": free - 1}, err
		}}, nil
	}
	p, err := plan(txsvc.Input{ID: "b-1", ShardKey: "2-14"})
	fmt.Println(p.Run != nil, err)
	// Output: true <nil>
}

// byFloor sends each floor's keys, like 2-14, to the queue that the options give the floor.
type byFloor struct{ queues map[string]int }

func newByFloor(options txsvc.Options) (txsvc.Selector, error) {
	var o struct {
		Floors map[string]int `yaml:"floors"` // to ids of queues
	}
	if err := options.Decode(&o); err != nil {
		return nil, err
	}
	for floor, id := range o.Floors {
		if id < 0 {
			return nil, txsvc.OptionErrorf("/floors/"+floor, "the id of a queue is not negative")
		}
	}
	return byFloor{o.Floors}, nil
}

func (byFloor) ByShardKey() bool { return true }

func (s byFloor) Select(queues []txsvc.Queue, in txsvc.SelectorInput) (txsvc.Choice, error) {
	floor, _, _ := strings.Cut(in.ShardKey, "-")
	id, known := s.queues[floor]
	if !known {
		return txsvc.Choice{}, txsvc.Invalid(txsvc.FieldError{Pointer: "/shard_key", Message: "must begin with a known floor"})
	}
	for _, q := range queues {
		if q.ID == id {
			return txsvc.Choice{Queue: q, Reason: "the floor's queue"}, nil
		}
	}
	return txsvc.Choice{}, txsvc.NoQueue("the topic has no queue %d now", id)
}

// A type of selectors reads its options when the service starts.
func ExampleWithSelector() {
	// The configuration then says selector: {type: by_floor, floors: {"1": 0, "2": 1}}.
	_ = txsvc.WithSelector("by_floor", newByFloor)

	// A selector is tested without a broker.
	s, err := newByFloor(txsvc.ParseOptions(`floors: {"1": 0, "2": 1, "3": 7}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"2-14", "9-1", "3-1"} {
		choice, err := s.Select([]txsvc.Queue{{Broker: "broker-a", ID: 0}, {Broker: "broker-a", ID: 1}}, txsvc.SelectorInput{ShardKey: key})
		fmt.Println(choice.Queue, choice.Reason, err)
	}
	// Output:
	// broker-a:1 the floor's queue <nil>
	// :0  invalid_request: /shard_key: must begin with a known floor
	// :0  broker_unavailable: the topic has no queue 7 now
}

// Mistakes in the options are named with their place; the service adds line and column.
func ExampleOptionErrorf() {
	_, err := newByFloor(txsvc.ParseOptions(`floors: {"1": -1}`))
	fmt.Println(err)
	_, err = newByFloor(txsvc.ParseOptions(`floor: {"1": 1}`))
	fmt.Println(err != nil)
	// Output:
	// /floors/1: the id of a queue is not negative
	// true
}

// A handler with a schema gets only payloads that fit it.
func ExampleSchema() {
	schema := txsvc.Schema{
		JSON: []byte(`{"type": "object", "required": ["room"], "properties": {"room": {"type": "string"}}}`),
		Parse: func(payload json.RawMessage) (any, bool) { // optional: Plan gets the value as Input.Parsed
			var b struct {
				Room *string `json:"room"`
			}
			err := json.Unmarshal(payload, &b)
			return b, err == nil && b.Room != nil
		},
	}
	_, ok := schema.Parse(json.RawMessage(`{"room": "2-14"}`))
	fmt.Println(ok)
	_, ok = schema.Parse(json.RawMessage(`{}`))
	fmt.Println(ok)
	// Output:
	// true
	// false
}
