// Package handlers has what people would write by hand, without messages: the handlers beside which the service is measured.
package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/orders"
)

// Connections is the size of a handler's pool, which is the service's default, too.
const Connections = 32

// The names of the handlers.
const (
	// Plain decodes with encoding/json, and makes two inserts between BEGIN and COMMIT, pipelined: a row that keeps the request, and
	// the note itself.
	Plain = "plain"
	// Strict decodes an order as strictly as the service's handler, and makes the inserts of that handler, in tables of its own (the
	// schema bench_strict).
	Strict = "strict"
)

// Serve serves the handler with that name until ctx ends.
func Serve(ctx context.Context, name, address, databaseURL string) error {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return fmt.Errorf("the database's URL: %w", err)
	}
	config.MaxConns = Connections
	if name == Strict {
		config.ConnConfig.RuntimeParams["search_path"] = "bench_strict"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("preparing the pool: %w", err)
	}
	defer pool.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := pool.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	switch name {
	case Plain:
		mux.HandleFunc("POST /v1/notes", plain(pool))
	case Strict:
		mux.HandleFunc("POST /v1/orders", strict(pool))
	default:
		return fmt.Errorf("no handler has the name %q", name)
	}
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// request is the body of a request.
type request struct {
	ShardKey string          `json:"shard_key"`
	Payload  json.RawMessage `json:"payload"`
}

const (
	insertTx   = `insert into bench.plain_tx (id, shard_key, body) values ($1, $2, $3)`
	insertNote = `insert into bench.plain_notes (id, shard_key, n) values ($1, $2, ($3::jsonb->>'n')::int)`
)

func plain(pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var in request
		if err := json.Unmarshal(body, &in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id := uuid.Must(uuid.NewV7()).String()
		batch := &pgx.Batch{}
		batch.Queue(`begin`)
		batch.Queue(insertTx, id, in.ShardKey, []byte(in.Payload))
		batch.Queue(insertNote, id, in.ShardKey, string(in.Payload))
		batch.Queue(`commit`)
		if err := pool.SendBatch(context.WithoutCancel(r.Context()), batch).Close(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
	}
}

func strict(pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := insertOrder(r, pool)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(result) //nolint:gosec // JSON, and a tool that serves loopback
	}
}

func insertOrder(r *http.Request, pool *pgxpool.Pool) ([]byte, error) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	plan, err := orders.Handler{}.Plan(txsvc.Input{ID: id.String(), ShardKey: in.ShardKey, Payload: in.Payload})
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue(`begin`)
	for _, s := range plan.Statements {
		batch.Queue(s.SQL, s.Args...)
	}
	batch.Queue(`commit`)
	if err := pool.SendBatch(context.WithoutCancel(r.Context()), batch).Close(); err != nil {
		return nil, err
	}
	return plan.Result.(json.RawMessage), nil //nolint:forcetypeassert // as the handler makes it
}
