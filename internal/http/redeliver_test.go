package http_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestRedeliver(t *testing.T) {
	h := setup(t)
	var asked []string
	h.flow.redeliver = func(id string) (*txn.Transaction, error) {
		asked = append(asked, id)
		switch id {
		case "rejected":
			return nil, txn.Errorf(txn.CodeConflict, "the transaction is not committed: it has no message to deliver")
		case "nobody":
			return nil, txn.Errorf(txn.CodeNotFound, "no transaction has this id")
		}
		return delivered(txn.Request{ID: id, Kind: "order.create", ShardKey: "acme"}), nil
	}
	for range 2 {
		h.post("/v1/transactions/o%2F1/redeliver", ``).want(http.StatusAccepted)
	}
	h.post("/v1/transactions/rejected/redeliver", ``).problem(http.StatusConflict, "conflict")
	h.post("/v1/transactions/nobody/redeliver", ``).problem(http.StatusNotFound, "not_found")
	h.post("/v1/transactions/%20/redeliver", ``).problem(http.StatusNotFound, "not_found")
	if len(asked) != 4 || asked[0] != "o/1" {
		t.Errorf("asked for %q, want o/1 twice and two others", asked)
	}
}

func TestTooManyOfOneKey(t *testing.T) {
	h := setup(t)
	h.flow.submit = func(context.Context, txn.Request) (*txn.Transaction, error) {
		return nil, &txn.Error{Code: txn.CodeKeyOverloaded, Detail: "too many wait"}
	}
	a := h.post("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	a.problem(http.StatusTooManyRequests, "overloaded")
	wantHeader(t, a, "Retry-After", "1")
}
