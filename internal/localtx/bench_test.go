package localtx_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/localtx"
	"github.com/txsvc/txsvc/internal/txn"
)

// inFlight is how many transactions the benchmarks run at once.
const inFlight = 32

// BenchmarkRun compares the local transaction of an order, with its row, with the same inserts alone: in one round trip
// each. "marked" also writes that the message was delivered. The rate is what counts:
//
//	go test -run '^$' -bench Run -count 5 ./internal/localtx
func BenchmarkRun(b *testing.B) {
	b.Run("bare", func(b *testing.B) { benchmark(b, setup(b), bare) })
	b.Run("run", func(b *testing.B) { benchmark(b, setup(b), runOnly) })
	b.Run("marked", func(b *testing.B) {
		e := setup(b)
		e.marking()
		benchmark(b, e, runAndMark)
	})
}

func benchmark(b *testing.B, e *env, one func(e *env, id string) error) {
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

func runOnly(e *env, id string) error {
	if o := e.store.Run(context.Background(), attempt("orders", id, order)); o.Kind != txn.OutcomeCommitted {
		return fmt.Errorf("got %s: %w", outcomeNames[o.Kind], o.Err)
	}
	return nil
}

func runAndMark(e *env, id string) error {
	err := runOnly(e, id)
	e.store.MarkDelivered(id, time.Now(), false)
	return err
}

func bare(e *env, id string) error {
	plan, err := ordersProgram{}.Plan(localtx.Input{ID: id, Payload: []byte(order)})
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	for _, s := range plan.Statements {
		batch.Queue(s.SQL, s.Args...)
	}
	batch.Queue(`COMMIT`)
	return e.pool.SendBatch(context.Background(), batch).Close()
}
