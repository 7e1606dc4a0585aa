package localtx_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
)

var tableRows = flag.Int("rows", 1_000_000, "rows of the large table in BenchmarkTableSize")

// fillDelivered puts delivered transactions of the last week into the table. Their ids are UUIDs of version 7, as the service
// makes them, or random ones.
const fillDelivered = `INSERT INTO txsvc.transactions (id, kind, state, delivery, request_hash, shard_key, topic, tag, broker, queue_id,
		selector, reason, uniq_key, commit_log_offset, queue_offset, result, created_at, decided_at, delivered_at)
	SELECT CASE WHEN $3 THEN uuidv4() ELSE uuidv7((n - 10000000) * interval '60 ms') END::text, 'orders', 'committed', 'delivered',
		sha256(int4send(n)), 'key-' || n % 100000, 'orders', 'created', 'broker-a', n % 8, 'hash', 'fnv1a64(shard_key) mod 8 = ' || n % 8,
		upper(md5(n::text)), n * 500::bigint, n, '{"order_id": "0190a1b2-0000-7000-8000-000000000000", "total_minor": 900}',
		now() - n * interval '60 ms', now() - n * interval '60 ms', now() - n * interval '60 ms'
	FROM generate_series($1::int, $2::int) AS n`

// BenchmarkTableSize compares transactions, and the resolver's look at what is due, on a table that is empty at first with
// those on a large one, in turns on one server:
//
//	go test -run '^$' -bench TableSize -benchtime 1x ./internal/localtx -rows 10000000
func BenchmarkTableSize(b *testing.B) {
	for name, random := range map[string]bool{"uuidv7": false, "random": true} {
		b.Run(name, func(b *testing.B) { benchmarkSize(b, random) })
	}
}

func benchmarkSize(b *testing.B, random bool) {
	small, large := pgtest.New(b), pgtest.New(b)
	filler, err := pgxpool.New(b.Context(), large.URL) // its statements may take their time
	if err != nil {
		b.Fatal(err)
	}
	defer filler.Close()
	for n := 0; n < *tableRows; n += 500_000 {
		if _, err := filler.Exec(b.Context(), fillDelivered, n, min(n+500_000, *tableRows)-1, random); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := filler.Exec(b.Context(), `VACUUM ANALYZE txsvc.transactions`); err != nil {
		b.Fatal(err)
	}
	small.Exec(`VACUUM ANALYZE txsvc.transactions`)
	for _, e := range []*pgtest.Env{small, large} {
		e.Marking()
	}
	b.ResetTimer()
	for range b.N {
		var run, claim []float64
		for turn := range 20 {
			var took [2]time.Duration
			var looked [2]time.Duration
			for i := range 2 {
				i = (i + turn) % 2 // who begins changes
				e := []*pgtest.Env{small, large}[i]
				took[i] = manyRuns(b, e, random, 2000)
				looked[i] = manyClaims(b, e, 200)
			}
			if turn > 1 { // caches are warm
				run = append(run, float64(took[1])/float64(took[0]))
				claim = append(claim, float64(looked[1])/float64(looked[0]))
			}
		}
		b.ReportMetric(median(run), "transactions-ratio")
		b.ReportMetric(median(claim), "claims-ratio")
	}
	b.StopTimer()
}

func manyRuns(b *testing.B, e *pgtest.Env, random bool, count int) time.Duration {
	b.Helper()
	start := time.Now()
	var all sync.WaitGroup
	for range inFlight {
		all.Go(func() {
			for range count / inFlight {
				id := uuid.Must(uuid.NewV7())
				if random {
					id = uuid.New()
				}
				if err := runAndMark(e, id.String()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

func manyClaims(b *testing.B, e *pgtest.Env, count int) time.Duration {
	b.Helper()
	start := time.Now()
	for range count {
		if _, err := e.Store.ClaimDue(context.Background(), []string{"broker-a", "broker-b"}, 500); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
