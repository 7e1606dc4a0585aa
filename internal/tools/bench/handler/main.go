// Command handler serves what people would write by hand, without messages: the handlers beside which the service is measured. Its
// argument is the name of one; LISTEN and TXSVC_DATABASE_URL are its settings.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/orders"
)

// connections is the size of a handler's pool, which is the service's default, too.
const connections = 32

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args[1:], os.Getenv("LISTEN"), os.Getenv("TXSVC_DATABASE_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handler:", err)
		os.Exit(1)
	}
}

// route is a handler's path, and the schema that its tables are found in first.
type route struct {
	path, schema string
	handle       func(*pgxpool.Pool) http.HandlerFunc
}

var routes = map[string]route{
	"plain":  {"POST /v1/notes", "bench", plain},
	"strict": {"POST /v1/orders", "bench_strict", strict},
}

// serve serves a handler until ctx ends.
func serve(ctx context.Context, args []string, address, databaseURL string) error {
	if len(args) != 1 || routes[args[0]].handle == nil {
		return fmt.Errorf("got the arguments %q, want plain or strict", args)
	}
	handler := routes[args[0]]
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return fmt.Errorf("the database's URL: %w", err)
	}
	config.MaxConns, config.ConnConfig.RuntimeParams["search_path"] = connections, handler.schema
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
	mux.HandleFunc(handler.path, handler.handle(pool))
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
	insertTx   = `insert into plain_tx (id, shard_key, body) values ($1, $2, $3)`
	insertNote = `insert into plain_notes (id, shard_key, n) values ($1, $2, ($3::jsonb->>'n')::int)`
)

// plain decodes with encoding/json, and makes two inserts between BEGIN and COMMIT, pipelined: a row that keeps the request, and the
// note itself.
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

// strict decodes an order as strictly as the service's handler, and makes the inserts of that handler.
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
