package pgtest

import (
	"encoding/json"

	"github.com/txsvc/txsvc/internal/localtx/task"
)

// Orders is a task.Planner that stores an order with its items in one round trip, as the shipped handler does.
type Orders struct{}

// Plan returns the statements of the order.
func (Orders) Plan(in task.Input) (task.Plan, error) {
	var order struct {
		Customer, Currency, Reference string
		Items                         []struct {
			SKU         string
			Quantity    int64
			AmountMinor int64 `json:"amount_minor"`
		}
	}
	if err := json.Unmarshal(in.Payload, &order); err != nil {
		return task.Plan{}, err
	}
	var total int64
	var skus []string
	var quantities, amounts []int64
	for _, item := range order.Items {
		skus, quantities, amounts = append(skus, item.SKU), append(quantities, item.Quantity), append(amounts, item.AmountMinor)
		total += item.Quantity * item.AmountMinor
	}
	result, err := json.Marshal(map[string]any{"order_id": in.ID, "total_minor": total, "currency": order.Currency, "items": len(order.Items)})
	return task.Plan{
		Statements: []task.Statement{
			{
				SQL:  `INSERT INTO orders (id, customer, currency, total_minor, reference) VALUES ($1, $2, $3, $4, nullif($5, ''))`,
				Args: []any{in.ID, order.Customer, order.Currency, total, order.Reference},
			},
			{
				SQL: `INSERT INTO order_items (order_id, line, sku, quantity, amount_minor)
					SELECT $1, line, sku, quantity, amount_minor
					FROM unnest($2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS item (sku, quantity, amount_minor, line)`,
				Args: []any{in.ID, skus, quantities, amounts},
			},
		},
		Result: result,
	}, err
}
