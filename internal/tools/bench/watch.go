package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/tools/bench/usage"
)

// use is the CPU time that has been used, and the WAL that has been written, up to a moment.
type use struct {
	at                                   time.Time
	service, postgres, broker, generator time.Duration
	wal                                  int64
}

// span is what was used during a measurement.
type span struct {
	begin, end use
	visible    int // messages of the contender's topic, at the end
	err        error
}

// watch looks at the processes after the warm-up, and again at the end of the measurement.
func (b *bench) watch(ctx context.Context, c *contender, p *process, warm time.Duration) <-chan span {
	watched := make(chan span, 1)
	go func() {
		var s span
		defer func() { watched <- s }()
		if !pause.For(ctx, warm) {
			return
		}
		if s.begin, s.err = b.use(ctx, p); s.err != nil || !pause.For(ctx, b.Duration) {
			return
		}
		if s.end, s.err = b.use(ctx, p); s.err == nil && c.topic != "" {
			s.visible, s.err = b.visible(ctx, c.topic)
		}
	}()
	return watched
}

func (b *bench) use(ctx context.Context, p *process) (u use, err error) {
	u.at = time.Now()
	for _, of := range []struct {
		into *time.Duration
		read func(int) (time.Duration, error)
		pid  int
	}{
		{&u.service, usage.Process, p.cmd.Process.Pid},
		{&u.postgres, usage.Tree, b.stack.Postgres().PID()},
		{&u.broker, usage.Process, b.stack.Broker(0).PID()},
		{&u.broker, usage.Process, b.stack.Namesrv().PID()},
		{&u.generator, usage.Process, os.Getpid()},
	} {
		t, err := of.read(of.pid)
		if err != nil {
			return u, err
		}
		*of.into += t
	}
	err = b.db.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&u.wal)
	if err != nil {
		return u, fmt.Errorf("asking for the position in the WAL: %w", err)
	}
	return u, nil
}

// visible returns the number of messages of a topic that consumers can see. All topics of a run are new.
func (b *bench) visible(ctx context.Context, topic string) (sum int, err error) {
	for queue := range queues {
		n, err := b.mq.MaxOffset(ctx, b.brokerName, topic, queue)
		if err != nil {
			return 0, fmt.Errorf("asking for the messages of topic %s: %w", topic, err)
		}
		sum += int(n)
	}
	return sum, nil
}

// drainWithin bounds the wait for messages to become visible after a measurement.
const drainWithin = 2 * time.Minute

// drain waits until as many messages are visible as transactions were answered, so that no contender works during the next
// one's turn.
func (b *bench) drain(ctx context.Context, c *contender) error {
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	for {
		n, err := b.visible(ctx, c.topic)
		if err != nil {
			return err
		}
		if n >= c.answered {
			return nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s: of %d messages, %d are visible %s after the last answer", c.name, c.answered, n, drainWithin)
		}
	}
}
