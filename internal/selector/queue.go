package selector

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

const argPointer = "/selector_arg"

// named picks the queue that selector_arg names: an id, or {"broker": …, "id": …}. An id alone is enough when exactly
// one broker has it.
type named struct{}

// reference is the long form of selector_arg. A nil pointer is a missing member.
type reference struct {
	Broker *string `json:"broker"`
	ID     *int    `json:"id"`
}

func (named) Name() string { return TypeQueue }

func (named) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	if len(queues) == 0 {
		return txn.Route{}, noQueue()
	}
	queue, reason, err := find(queues, bytes.TrimSpace(in.Arg))
	if err != nil {
		return txn.Route{}, err
	}
	return txn.Route{Queue: queue, Selector: TypeQueue, Reason: reason}, nil
}

// find decodes the argument by what it begins with.
func find(queues []txn.Queue, arg jsontext.Value) (txn.Queue, string, error) {
	switch arg.Kind() {
	case '0':
		id, err := strconv.Atoi(string(arg))
		if err != nil {
			return txn.Queue{}, "", invalid("", "must be a whole number: a queue's id")
		}
		queue, err := byID(queues, id)
		return queue, "selector_arg names the id", err
	case '{':
		queue, err := byReference(queues, arg)
		return queue, "selector_arg names broker and id", err
	case 'n', 0:
		return txn.Queue{}, "", invalid("", "is required: the queue's id, or an object with broker and id")
	default:
		return txn.Queue{}, "", invalid("", "must be a queue's id, or an object with broker and id")
	}
}

// byID finds the one queue with the id.
func byID(queues []txn.Queue, id int) (txn.Queue, error) {
	found := -1
	for i, queue := range queues {
		if queue.ID != id {
			continue
		}
		if found >= 0 {
			return txn.Queue{}, invalid("", "the id %d is on the brokers %s and %s: name the broker, too", id, queues[found].Broker, queue.Broker)
		}
		found = i
	}
	if found < 0 {
		return txn.Queue{}, invalid("", "there is no usable queue with the id %d", id)
	}
	return queues[found], nil
}

func byReference(queues []txn.Queue, arg jsontext.Value) (txn.Queue, error) {
	want, err := parseReference(arg)
	if err != nil {
		return txn.Queue{}, err
	}
	for _, queue := range queues {
		if queue == want {
			return queue, nil
		}
	}
	return txn.Queue{}, invalid("", "there is no usable queue %s", want)
}

func parseReference(arg jsontext.Value) (txn.Queue, error) {
	var ref reference
	if err := json.Unmarshal(arg, &ref, json.RejectUnknownMembers(true)); err != nil {
		return txn.Queue{}, decodeError(err)
	}
	if ref.Broker == nil || *ref.Broker == "" {
		return txn.Queue{}, invalid("/broker", "is required: the broker's name")
	}
	if ref.ID == nil {
		return txn.Queue{}, invalid("/id", "is required: the queue's id on the broker")
	}
	return txn.Queue{Broker: *ref.Broker, ID: *ref.ID}, nil
}

// decodeError says where the argument is wrong, because the library's own messages are for Go programmers.
func decodeError(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return invalid(string(semantic.JSONPointer), "is unknown: there are broker and id")
		}
		return invalid(string(semantic.JSONPointer), "has the wrong type: broker is a string, id a whole number")
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return invalid(string(syntactic.JSONPointer), "is there twice")
	}
	return invalid("", "is not valid JSON")
}

func invalid(pointer, format string, args ...any) error {
	return txn.Invalid(txn.FieldError{Pointer: argPointer + pointer, Message: fmt.Sprintf(format, args...)})
}
