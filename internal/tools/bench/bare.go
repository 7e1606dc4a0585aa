package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/orders"
)

// bareRequest is the request of a handler without transactions, routing and idempotency.
type bareRequest struct {
	ShardKey string          `json:"shard_key"`
	Payload  json.RawMessage `json:"payload"`
}

// serveBare does the inserts of the service's orders, in one round trip, and nothing else.
func serveBare(ctx context.Context, addr, databaseURL string) error {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/orders", func(w http.ResponseWriter, r *http.Request) {
		result, err := insertOrder(r, pool)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(result) //nolint:gosec // JSON, and a tool that serves loopback
	})
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { <-ctx.Done(); _ = server.Close() }()
	if err := server.ListenAndServe(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func insertOrder(r *http.Request, pool *pgxpool.Pool) ([]byte, error) {
	var request bareRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	plan, err := orders.Handler{}.Plan(txsvc.Input{ID: id.String(), ShardKey: request.ShardKey, Payload: request.Payload})
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	for _, s := range plan.Statements {
		batch.Queue(s.SQL, s.Args...)
	}
	batch.Queue(`COMMIT`)
	if err := pool.SendBatch(r.Context(), batch).Close(); err != nil {
		return nil, err
	}
	return plan.Result.(json.RawMessage), nil //nolint:forcetypeassert // as the handler makes it
}
