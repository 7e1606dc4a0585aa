package orders

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// shape is an order in which it can be seen what is missing.
type shape struct {
	Customer  *string      `json:"customer"`
	Currency  *string      `json:"currency"`
	Reference *string      `json:"reference"`
	Items     *[]itemShape `json:"items"`
}

type itemShape struct {
	SKU         *string `json:"sku"`
	Quantity    *int64  `json:"quantity"`
	AmountMinor *int64  `json:"amount_minor"`
}

// Validate names what is missing or of the wrong type.
func (Handler) Validate(payload stdjson.RawMessage) []txn.FieldError {
	var s shape
	if err := json.Unmarshal(payload, &s); err != nil {
		return []txn.FieldError{wrongType(err)}
	}
	var missing []txn.FieldError
	require := func(there bool, format string, args ...any) {
		if !there {
			missing = append(missing, txn.FieldError{Pointer: fmt.Sprintf(format, args...), Message: "is required"})
		}
	}
	require(s.Customer != nil, "/customer")
	require(s.Currency != nil, "/currency")
	require(s.Items != nil, "/items")
	if s.Items == nil {
		return missing
	}
	if len(*s.Items) == 0 {
		missing = append(missing, txn.FieldError{Pointer: "/items", Message: "an order needs at least one item"})
	}
	for i, item := range *s.Items {
		require(item.SKU != nil, "/items/%d/sku", i)
		require(item.Quantity != nil, "/items/%d/quantity", i)
		require(item.AmountMinor != nil, "/items/%d/amount_minor", i)
	}
	return missing
}

// wrongType says in the words of JSON what the field should be.
func wrongType(err error) txn.FieldError {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return txn.FieldError{Pointer: string(syntactic.JSONPointer), Message: "is not valid JSON, or is there twice"}
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return txn.FieldError{Message: "is not an order"}
	}
	message := "has the wrong type"
	if t := semantic.GoType; t != nil {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if want, ok := words[t.Kind()]; ok {
			message = "must be " + want
		}
	}
	return txn.FieldError{Pointer: string(semantic.JSONPointer), Message: message}
}

var words = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Int64: "an integer of at most 64 bits", reflect.Slice: "an array", reflect.Struct: "an object",
}
