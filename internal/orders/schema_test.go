package orders_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/orders"
	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

func at(pointer, message string) txn.FieldError {
	return txn.FieldError{Pointer: pointer, Message: message}
}

// All mistakes are told at once, those of the tables' constraints included.
func TestSchema(t *testing.T) {
	schema, err := payload.CompileText(orders.Handler{}.Schema().JSON)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		payload string
		want    []txn.FieldError
	}{
		"an order":                          {`{"customer": "c", "currency": "EUR", "items": [{"sku": "a", "quantity": 1, "amount_minor": 0}], "note": "x"}`, nil},
		"integers as JSON Schema has them":  {`{"customer": "c", "currency": "EUR", "reference": null, "items": [{"sku": "a", "quantity": 2.0, "amount_minor": 4.5e2}]}`, nil},
		"nothing":                           {`{}`, []txn.FieldError{at("/currency", "is required"), at("/customer", "is required"), at("/items", "is required")}},
		"no object":                         {`[]`, []txn.FieldError{at("", "must be of type object, not array")}},
		"no items":                          {`{"customer": "c", "currency": "EUR", "items": []}`, []txn.FieldError{at("/items", "must have at least 1 items")}},
		"a character that text cannot hold": {`{"customer": "c\u0000", "currency": "EUR", "items": [{"sku": "a", "quantity": 1, "amount_minor": 1}]}`, []txn.FieldError{at("/customer", "must match the pattern ^[^\\x00]*$")}},
		"everything": {
			`{"customer": "", "currency": "euro", "reference": 7, "items": [{"sku": "", "quantity": 0, "amount_minor": -1}, {"quantity": 1.5, "amount_minor": "1"}, "x"]}`,
			[]txn.FieldError{
				at("/currency", "must match the pattern ^[A-Z]{3}$"),
				at("/customer", "must have at least 1 characters"),
				at("/items/0/amount_minor", "must be at least 0"),
				at("/items/0/quantity", "must be at least 1"),
				at("/items/0/sku", "must have at least 1 characters"),
				at("/items/1/amount_minor", "must be of type integer, not string"),
				at("/items/1/quantity", "must be of type integer, not number"),
				at("/items/1/sku", "is required"),
				at("/items/2", "must be of type object, not string"),
				at("/reference", "must be of type null or string, not number"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, schema.Validate([]byte(tc.payload))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.want != nil {
				return
			}
			if _, err := (orders.Handler{}).Plan(txsvc.Input{Payload: json.RawMessage(tc.payload)}); err != nil {
				t.Errorf("the schema allows what Plan refuses: %v", err)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	payload := []byte(`{"customer":"acme","currency":"EUR","items":[{"sku":"tea","quantity":2,"amount_minor":450},{"sku":"cup","quantity":1,"amount_minor":1200}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := (orders.Handler{}).Schema().Parse(payload); !ok {
			b.Fatal("an ordinary order is not parsed")
		}
	}
}
