package orders_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/orders"
	"github.com/txsvc/txsvc/internal/txn"
)

func at(pointer, message string) txn.FieldError {
	return txn.FieldError{Pointer: pointer, Message: message}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		payload string
		want    []txn.FieldError
	}{
		"an order": {`{"customer": "c", "currency": "EUR", "items": [{"sku": "a", "quantity": 1, "amount_minor": 0}], "note": "x"}`, nil},
		"nothing":  {`{}`, []txn.FieldError{at("/customer", "is required"), at("/currency", "is required"), at("/items", "is required")}},
		"no items": {`{"customer": "c", "currency": "EUR", "items": []}`, []txn.FieldError{at("/items", "an order needs at least one item")}},
		"incomplete items": {
			`{"customer": "c", "currency": "EUR", "items": [{"sku": "a", "quantity": 1, "amount_minor": 1}, {"sku": null}]}`,
			[]txn.FieldError{at("/items/1/sku", "is required"), at("/items/1/quantity", "is required"), at("/items/1/amount_minor", "is required")},
		},
		"quantity of the wrong type": {
			`{"customer": "c", "currency": "EUR", "items": [{"sku": "a", "quantity": "2", "amount_minor": 1}]}`,
			[]txn.FieldError{at("/items/0/quantity", "must be an integer of at most 64 bits")},
		},
		"amount that is no integer": {
			`{"customer": "c", "currency": "EUR", "items": [{"sku": "a", "quantity": 2, "amount_minor": 4.5}]}`,
			[]txn.FieldError{at("/items/0/amount_minor", "must be an integer of at most 64 bits")},
		},
		"item of the wrong type":     {`{"items": ["x"]}`, []txn.FieldError{at("/items/0", "must be an object")}},
		"items of the wrong type":    {`{"items": 1}`, []txn.FieldError{at("/items", "must be an array")}},
		"customer of the wrong type": {`{"customer": 1}`, []txn.FieldError{at("/customer", "must be a string")}},
		"no object":                  {`[]`, []txn.FieldError{at("", "must be an object")}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, orders.Handler{}.Validate([]byte(tc.payload))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
