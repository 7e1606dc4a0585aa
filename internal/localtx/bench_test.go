package localtx_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// serial numbers what tests and benchmarks make.
var serial atomic.Int64

// inFlight is how many transactions the benchmarks run at once.
const inFlight = 32

// BenchmarkRun compares the local transaction of an order, with its row, with the same inserts alone: in one round trip
// each. "marked" also writes that the message was delivered. The rate is what counts:
//
//	go test -run '^$' -bench Run -count 5 ./internal/localtx
func BenchmarkRun(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchmark(b, pgtest.New(b), bare) })
	b.Run("run", func(b *testing.B) { benchmark(b, pgtest.New(b), runOnly) })
	b.Run("marked", func(b *testing.B) {
		e := pgtest.New(b)
		e.Marking()
		benchmark(b, e, runAndMark)
	})
}

func benchmark(b *testing.B, e *pgtest.Env, one func(e *pgtest.Env, id string) error) {
	b.SetParallelism(inFlight / 2) // times GOMAXPROCS, which is 2 where this was measured
	prefix := fmt.Sprint("tx-", serial.Add(1), "-")
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := one(e, fmt.Sprint(prefix, serial.Add(1))); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
}

func runOnly(e *pgtest.Env, id string) error {
	if o := e.Store.Run(context.Background(), pgtest.Attempt("orders", id, pgtest.Order)); o.Kind != txn.OutcomeCommitted {
		return fmt.Errorf("got %s: %w", pgtest.OutcomeNames[o.Kind], o.Err)
	}
	return nil
}

func runAndMark(e *pgtest.Env, id string) error {
	err := runOnly(e, id)
	e.Store.MarkDelivered(id, time.Now(), false)
	return err
}

func bare(e *pgtest.Env, id string) error {
	plan, err := pgtest.Orders{}.Plan(task.Input{ID: id, Payload: []byte(pgtest.Order)})
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	for _, s := range plan.Statements {
		batch.Queue(s.SQL, s.Args...)
	}
	batch.Queue(`COMMIT`)
	return e.Pool.SendBatch(context.Background(), batch).Close()
}
