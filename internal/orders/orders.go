// Package orders is the shipped example of a local transaction in Go: it stores an order with its items, in one round
// trip. It uses the module's root package only, as users' handlers do.
package orders

import (
	stdjson "encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc"
)

// Order is the payload; order.json is its schema. Amounts are in minor units of the currency (cents). The payload may have further
// members, which are for the consumers of the message.
type Order struct {
	Customer  string `json:"customer"`
	Currency  string `json:"currency"`  // ISO 4217, three capital letters
	Reference string `json:"reference"` // the customer's own number, unique for the customer; optional
	Items     []Item `json:"items"`
}

// Item is one line of an order.
type Item struct {
	SKU         string   `json:"sku"`
	Quantity    Integer  `json:"quantity"`
	AmountMinor *Integer `json:"amount_minor"` // of one piece
}

// Integer is a whole number of JSON in any form that JSON Schema calls an integer: 2, 2.0 and 2e0 are one.
type Integer int64

// UnmarshalJSONFrom reads the number. It is an error when it is not whole, or has more than 64 bits.
func (i *Integer) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		*i = Integer(n)
		return nil
	}
	number, ok := new(big.Rat).SetString(string(value)) // how large it can be was bounded when the request was read
	if !ok || value.Kind() != '0' || !number.IsInt() || !number.Num().IsInt64() {
		return fmt.Errorf("%s is no integer of at most 64 bits", dec.StackPointer())
	}
	*i = Integer(number.Num().Int64())
	return nil
}

type result struct {
	OrderID    string `json:"order_id"`
	TotalMinor int64  `json:"total_minor"`
	Currency   string `json:"currency"`
	Items      int    `json:"items"`
}

// Handler stores orders. The schema refuses wrong payloads before anything is done (400). The tables' constraints refuse a
// reference that is used already, because only the database knows it (422).
type Handler struct{}

var _ txsvc.SchemaHandler = Handler{}

const (
	insertOrder = `INSERT INTO orders (id, customer, currency, total_minor, reference) VALUES ($1, $2, $3, $4, nullif($5, ''))`
	insertItems = `INSERT INTO order_items (order_id, line, sku, quantity, amount_minor)
		SELECT $1, line, sku, quantity, amount_minor
		FROM unnest($2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS item (sku, quantity, amount_minor, line)`
)

// Plan returns the two inserts, and {"order_id", "total_minor", "currency", "items"} as the result. The order's id is
// that of the transaction.
func (Handler) Plan(in txsvc.Input) (txsvc.Plan, error) {
	order, parsed := in.Parsed.(*Order)
	if !parsed { // the configuration gives the kind another schema, which may allow more
		order = new(Order)
		if err := json.Unmarshal(in.Payload, order); err != nil {
			return txsvc.Plan{}, fmt.Errorf("decoding an order that was checked: %w", err)
		}
	}
	skus, quantities, amounts := make([]string, len(order.Items)), make([]int64, len(order.Items)), make([]int64, len(order.Items))
	var total int64
	for i, item := range order.Items {
		if item.AmountMinor == nil { // where the configuration gives the kind another schema
			return txsvc.Plan{}, txsvc.Invalid(txsvc.FieldError{Pointer: fmt.Sprintf("/payload/items/%d/amount_minor", i), Message: "is required"})
		}
		skus[i], quantities[i], amounts[i] = item.SKU, int64(item.Quantity), int64(*item.AmountMinor)
		sum, ok := addProduct(total, quantities[i], amounts[i])
		if !ok {
			return txsvc.Plan{}, txsvc.Invalid(txsvc.FieldError{
				Pointer: fmt.Sprintf("/payload/items/%d", i), Message: "the order's total is out of range",
			})
		}
		total = sum
	}
	encoded, err := json.Marshal(result{OrderID: in.ID, TotalMinor: total, Currency: order.Currency, Items: len(order.Items)})
	return txsvc.Plan{
		Statements: []txsvc.Statement{
			{SQL: insertOrder, Args: []any{in.ID, order.Customer, order.Currency, total, order.Reference}},
			{SQL: insertItems, Args: []any{in.ID, skus, quantities, amounts}},
		},
		Result: stdjson.RawMessage(encoded),
	}, err
}

// addProduct returns total + quantity*amount, and false when that, or the product, leaves the range of an int64.
func addProduct(total, quantity, amount int64) (int64, bool) {
	if quantity == 0 || amount == 0 {
		return total, true
	}
	product := quantity * amount
	// The smallest number has no positive counterpart, which the division would not show.
	if product/amount != quantity || quantity == -1 && amount == math.MinInt64 || amount == -1 && quantity == math.MinInt64 {
		return 0, false
	}
	if product > 0 && total > math.MaxInt64-product || product < 0 && total < math.MinInt64-product {
		return 0, false
	}
	return total + product, true
}
