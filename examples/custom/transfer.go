package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc"
)

// Transfer moves an amount from one account to another. It reads the balance before it writes, so it talks to the database
// itself.
type Transfer struct{}

type transfer struct {
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// Plan checks the payload, and returns what to run. The shard key is the account that pays.
func (Transfer) Plan(in txsvc.Input) (txsvc.Plan, error) {
	var t transfer
	if err := json.Unmarshal(in.Payload, &t); err != nil {
		return txsvc.Plan{}, txsvc.Invalid(txsvc.FieldError{Pointer: "/payload", Message: "must be an object with to and amount"})
	}
	if t.Amount < 1 {
		return txsvc.Plan{}, txsvc.Invalid(txsvc.FieldError{Pointer: "/payload/amount", Message: "must be at least 1"})
	}
	return txsvc.Plan{Run: func(ctx context.Context, tx pgx.Tx) (any, error) { return t.run(ctx, tx, in.ShardKey) }}, nil
}

// run may be called again, after a deadlock for example: it changes nothing but what tx can roll back.
func (t transfer) run(ctx context.Context, tx pgx.Tx, from string) (any, error) {
	var balance int64
	err := tx.QueryRow(ctx, `SELECT balance FROM accounts WHERE id = $1 FOR UPDATE`, from).Scan(&balance)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && balance < t.Amount {
		return nil, &txsvc.Rejection{Message: "the account has not enough money"}
	}
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance - $2 WHERE id = $1`, from, t.Amount); err != nil {
		return nil, err
	}
	tag, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance + $2 WHERE id = $1`, t.To, t.Amount)
	if err == nil && tag.RowsAffected() == 0 {
		err = &txsvc.Rejection{Message: "there is no account to transfer to"}
	}
	return map[string]any{"balance": balance - t.Amount}, err
}
