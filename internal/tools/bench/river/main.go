// Command river is a contender of the benchmark: a handler that inserts a note, and a job of River in the same transaction. No worker
// runs, so it measures the insert of the job only. It has a module of its own, so that the service does not depend on River.
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
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("LISTEN"), os.Getenv("TXSVC_DATABASE_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// connections is the size of the pool, as that of all contenders.
const connections = 32

// noteArgs are a job's arguments: what a message would carry.
type noteArgs struct {
	ID       string          `json:"id"`
	ShardKey string          `json:"shard_key"`
	Payload  json.RawMessage `json:"payload"`
}

// Kind is the job's kind.
func (noteArgs) Kind() string { return "note" }

func run(ctx context.Context, address, databaseURL string) error {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("making River's tables: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/notes", post(pool, client))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func post(pool *pgxpool.Pool, client *river.Client[pgx.Tx]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		args := noteArgs{ID: uuid.Must(uuid.NewV7()).String()}
		if err := json.Unmarshal(body, &args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err = pgx.BeginFunc(context.WithoutCancel(r.Context()), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), `insert into bench.river_notes (id, shard_key, n) values ($1, $2, ($3::jsonb->>'n')::int)`,
				args.ID, args.ShardKey, string(args.Payload))
			if err != nil {
				return err
			}
			_, err = client.InsertTx(r.Context(), tx, args, nil)
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": args.ID})
	}
}
