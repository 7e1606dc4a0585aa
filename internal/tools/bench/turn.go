package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txsvc/txsvc/internal/tools/bench/load"
)

// turn is one measurement of one contender. Times are per transaction: per answer 2xx.
type turn struct {
	Part        float64  `json:"part,omitempty"` // of the contender's rate in the closed loop; 0: this is the closed loop
	Rate        float64  `json:"rate,omitempty"` // per second, of an open loop
	Seconds     float64  `json:"seconds"`
	PerSecond   float64  `json:"per_second"`
	P50         float64  `json:"p50_ms"`
	P99         float64  `json:"p99_ms"`
	P999        float64  `json:"p999_ms"`
	Service     float64  `json:"service_us"` // CPU of the contender's process
	Postgres    float64  `json:"postgres_us"`
	Broker      float64  `json:"broker_us"` // with its name server
	Generator   float64  `json:"generator_us"`
	WAL         float64  `json:"wal_bytes"`
	Behind      int      `json:"behind"`   // messages of answered transactions that were not visible at the end of the measurement
	DrainedMS   float64  `json:"drain_ms"` // until they were, after the last answer
	Errors      int      `json:"errors"`
	FirstErrors []string `json:"first_errors,omitempty"`
}

// grace is how much longer than the measurement the load lasts, so that no connection is idle at its end.
const grace = 200 * time.Millisecond

// openConnections is how many times as many connections an open loop may use: the more requests a server holds, the fewer wait in
// the generator. Both waits count.
const openConnections = 4

// take measures a contender, which is started for it unless it runs.
func (b *bench) take(ctx context.Context, c *contender, rate float64, warm time.Duration) (t turn, err error) {
	// Full pages are written again after each checkpoint, and those that the warm-up touches are not measured. So no
	// contender has to write what another one left.
	if _, err := b.db.Exec(ctx, "checkpoint"); err != nil {
		return t, fmt.Errorf("checkpoint: %w", err)
	}
	p := c.running
	if p == nil {
		if p, err = b.serve(ctx, c); err != nil {
			return t, err
		}
		if c.stays {
			c.running = p
		} else {
			defer p.stop()
		}
	}
	return b.measure(ctx, c, p, rate, warm)
}

func (b *bench) measure(ctx context.Context, c *contender, p *process, rate float64, warm time.Duration) (t turn, err error) {
	connections := b.Connections
	if rate > 0 {
		connections *= openConnections
	}
	kept, base, scratch := b.kept.empty(), c.answered, []byte(nil)
	watched := b.watch(ctx, c, p, warm)
	result, err := load.Run(ctx, load.Options{
		Address: p.address, Connections: connections, Rate: rate, Duration: warm + b.Duration + grace,
		Append: func(request []byte, n int) []byte {
			request, scratch = c.appendRequest(request, scratch, base+n)
			return request
		},
		Answer: func(status int, body []byte) {
			if c.kind != "" && status/100 == 2 {
				kept.add(body)
			}
		},
	})
	last := time.Now()
	span := <-watched
	if err := errors.Join(err, span.err, ctx.Err()); err != nil {
		return t, err
	}
	c.answered += len(result.Samples)
	t, err = b.evaluate(c, rate, result, &span)
	if err != nil {
		return t, err
	}
	if err := kept.each(b.audit.Answered); err != nil {
		return t, err
	}
	if c.topic != "" {
		err = b.drain(ctx, c)
		t.DrainedMS = milliseconds(time.Since(last))
	}
	return t, err
}

func (b *bench) evaluate(c *contender, rate float64, result *load.Result, s *span) (t turn, err error) {
	w := result.Between(s.begin.at, s.end.at)
	if w.Count == 0 {
		return t, fmt.Errorf("no request was answered well: %v", result.Reasons)
	}
	latency := w
	if rate > 0 {
		latency = result.DueBetween(s.begin.at, s.end.at)
	}
	us := func(of func(*use) time.Duration) float64 {
		return float64((of(&s.end) - of(&s.begin)).Microseconds()) / float64(w.Count)
	}
	t = turn{
		Rate: rate, Seconds: w.Elapsed.Seconds(), PerSecond: w.PerSecond(),
		P50: milliseconds(latency.Quantile(.5)), P99: milliseconds(latency.Quantile(.99)), P999: milliseconds(latency.Quantile(.999)),
		Service: us(func(u *use) time.Duration { return u.service }), Postgres: us(func(u *use) time.Duration { return u.postgres }),
		Broker: us(func(u *use) time.Duration { return u.broker }), Generator: us(func(u *use) time.Duration { return u.generator }),
		WAL: float64(s.end.wal-s.begin.wal) / float64(w.Count), Errors: result.Failed, FirstErrors: result.Reasons,
	}
	if c.topic != "" {
		// What was answered after the end is in visible as well, when it is visible already.
		after := result.Between(s.end.at, s.end.at.Add(time.Hour)).Count
		t.Behind = max(0, c.answered-after-s.visible)
	}
	return t, nil
}

func (t turn) perSecond() float64 { return t.PerSecond }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// kept has the bodies of answers. They are decoded after the measurement.
type kept struct {
	text []byte
	ends []int
}

func (k *kept) empty() *kept {
	k.text, k.ends = k.text[:0], k.ends[:0]
	return k
}

func (k *kept) add(body []byte) {
	k.text = append(k.text, body...)
	k.ends = append(k.ends, len(k.text))
}

func (k *kept) each(handle func(body []byte) error) error {
	from := 0
	for _, to := range k.ends {
		if err := handle(k.text[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}
