package remoting

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHalfAndEnd sends half messages and commits them, 32 at a time. It
// reports the client's own CPU time per message, and how many frames shared a write.
func BenchmarkHalfAndEnd(b *testing.B) {
	for name, codec := range map[string]Codec{"binary": CodecBinary, "json": CodecJSON} {
		b.Run(name, func(b *testing.B) {
			benchmarkHalfAndEnd(b, newClient(b, func(cfg *Config) { cfg.Codec = &codec }), 32)
		})
	}
}

func benchmarkHalfAndEnd(b *testing.B, c *Client, workers int) {
	topic, broker := newTopic(b, c, 8), anyBroker(b, c)
	body := make([]byte, 300)
	var left, failed atomic.Int64
	var lastErr atomic.Value
	left.Store(int64(b.N))
	before, cpu := c.Stats(), cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := halfAndEnd(b, c, broker, topic, w%8, body); err != nil {
					failed.Add(1)
					lastErr.Store(err)
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	if n := failed.Load(); n > 0 {
		b.Fatalf("%d of %d failed: %v", n, b.N, lastErr.Load())
	}
	after := c.Stats()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/msg")
	b.ReportMetric(float64(after.FramesWritten-before.FramesWritten)/float64(after.Writes-before.Writes), "frames/write")
}

func halfAndEnd(b *testing.B, c *Client, broker, topic string, queue int, body []byte) error {
	sent, err := c.Send(b.Context(), broker, &SendRequest{
		Topic: topic, QueueID: queue, Half: true, Body: body, Properties: Properties{{PropKeys, "k"}, {PropShardingKey, "s"}},
	})
	if err != nil {
		return fmt.Errorf("half: %w", err)
	}
	e := endRequest(topic, sent, Commit)
	e.WriteBefore = time.Now().Add(5 * time.Second)
	return c.EndTransaction(b.Context(), broker, e)
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkUniqKey(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			UniqKey()
		}
	})
}
