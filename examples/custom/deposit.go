package main

import (
	_ "embed"
	"encoding/json"

	"github.com/txsvc/txsvc"
)

//go:embed deposit.json
var depositSchema []byte

// Deposit adds an amount to an account. Its statements are known beforehand, so it takes one round trip.
type Deposit struct{}

// Schema says which payloads are deposits; others are answered 400.
func (Deposit) Schema() txsvc.Schema { return txsvc.Schema{JSON: depositSchema} }

// Plan returns the statements. The shard key is the account.
func (Deposit) Plan(in txsvc.Input) (txsvc.Plan, error) {
	var deposit struct {
		Amount int64 `json:"amount"`
	}
	if err := json.Unmarshal(in.Payload, &deposit); err != nil {
		return txsvc.Plan{}, err
	}
	const limit = 10_000
	if deposit.Amount > limit {
		return txsvc.Plan{}, &txsvc.Rejection{Message: "deposits above 10000 need a second signature"}
	}
	return txsvc.Plan{
		Statements: []txsvc.Statement{{
			SQL: `INSERT INTO accounts (id, balance) VALUES ($1, $2)
				ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + excluded.balance`,
			Args: []any{in.ShardKey, deposit.Amount},
		}},
		Result: map[string]any{"account": in.ShardKey, "added": deposit.Amount},
	}, nil
}
