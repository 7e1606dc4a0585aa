package leases_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

var tableRows = flag.Int("rows", 1_000_000, "rows of the backlog in BenchmarkBacklog")

// BenchmarkBacklog measures what claims cost with a backlog of the given rows, while it is drained: a claim, and the marks.
//
//	go test -run '^$' -bench Backlog -benchtime 1x ./internal/postgres/leases -rows 1000000
func BenchmarkBacklog(b *testing.B) {
	for name, shape := range map[string]struct {
		rows, keys int // in all, or as many keys as rows
		ordered    bool
	}{
		"outbox": {*tableRows / 1000, 1000, false}, "one line": {*tableRows / 10, 1, true}, "a row per line": {1, *tableRows / 10, true},
	} {
		b.Run(name, func(b *testing.B) {
			e := setup(b)
			for done := 0; done < shape.keys; done += max(1, shape.keys/20) { // a statement has 5 s
				e.Exec(insertPending, shape.rows, done, min(done+max(1, shape.keys/20), shape.keys), shape.ordered)
			}
			e.Exec(`ANALYZE txsvc.transactions`)
			b.ResetTimer()
			for range b.N {
				var claims, marks []float64
				rows := 0
				after := ""
				start := time.Now()
				for range 60 {
					begin := time.Now()
					var got []txn.Claim
					if shape.ordered {
						got, after = claimNextLines(b, e, after)
					} else {
						got = claimNext(b, e)
					}
					claims = append(claims, ms(begin))
					begin = time.Now()
					for _, c := range got {
						e.Store.MarkDelivered(c.Lease.ID, begin, c.Ordered)
					}
					if err := e.Store.FlushMarks(b.Context()); err != nil {
						b.Fatal(err)
					}
					marks = append(marks, ms(begin))
					rows += len(got)
				}
				if rows == 0 {
					b.Fatal("nothing was claimed")
				}
				b.ReportMetric(float64(rows)/time.Since(start).Seconds(), "rows/s")
				b.ReportMetric(middle(claims), "ms/claim")
				b.ReportMetric(slices.Max(claims), "ms/slowest")
				b.ReportMetric(middle(marks), "ms/marks")
				b.ReportMetric(float64(rows)/60, "rows/claim")
				b.ReportMetric(0, "ns/op")
			}
			begin := time.Now()
			if _, err := e.Store.Groups(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ms(begin), "ms/groups")
			begin = time.Now()
			if _, err := e.Store.Pending(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ms(begin), "ms/gauges")
		})
	}
}

func ms(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

func middle(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func claimNext(b *testing.B, e env) []txn.Claim {
	b.Helper()
	got, err := e.Store.ClaimOutbox(b.Context(), "broker-a", "t", 500)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func claimNextLines(b *testing.B, e env, after string) ([]txn.Claim, string) {
	b.Helper()
	keys, last, err := e.Store.DueLines(b.Context(), "t", after, brokers, 500)
	if err != nil {
		b.Fatal(err)
	}
	got, err := e.Store.ClaimLines(b.Context(), "t", keys, brokers, 100)
	if err != nil {
		b.Fatal(fmt.Errorf("claiming %d lines: %w", len(keys), err))
	}
	return got, last
}
