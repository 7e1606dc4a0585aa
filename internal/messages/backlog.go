package messages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// Pauses between two tries of a message that was certainly not sent.
const (
	firstRetry = 50 * time.Millisecond
	maxRetry   = 2 * time.Second
)

// perMessage is about how many bytes a waiting message takes in memory besides its own.
const perMessage = 512

// backlogs holds the messages of mode async until the broker has answered. Each queue has a backlog, whose messages are sent
// one after the other, because the broker's threads change the order of messages that arrive together. A backlog has a
// goroutine as long as something is in it.
type backlogs struct {
	config  Config
	broker  Broker
	metrics *metrics
	log     *slog.Logger
	ctx     context.Context // ends when the messages that still wait are given up
	giveUp  context.CancelFunc
	workers sync.WaitGroup

	mu     sync.Mutex
	by     map[target][]*job // also an empty backlog, while its worker runs
	count  int               // messages that wait or are being sent
	bytes  int
	closed bool
	lost   int
}

// target is one queue of a topic.
type target struct {
	topic string
	queue txn.Queue
}

// job is the messages of one request.
type job struct {
	list    []txn.Message
	bytes   int
	expires time.Time
}

func newBacklogs(config Config, broker Broker, m *metrics, log *slog.Logger) *backlogs {
	b := &backlogs{config: config, broker: broker, metrics: m, log: log, by: make(map[target][]*job)}
	b.ctx, b.giveUp = context.WithCancel(context.Background())
	return b
}

// add accepts messages, or refuses them when there is no room.
func (b *backlogs) add(list []txn.Message, size int) error {
	for i := range list { // the body is a part of the request's, which may be much larger
		list[i].Body = bytes.Clone(list[i].Body)
	}
	j := &job{list: list, bytes: size + perMessage*len(list), expires: time.Now().Add(b.config.Timing.AsyncWithin)}
	at := target{list[0].Topic, list[0].Queue}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return overloaded("the service is stopping and takes on no more messages; nothing was sent")
	case b.count+len(list) > b.config.MaxWaiting, b.bytes+j.bytes > b.config.MaxWaitingBytes:
		return overloaded(fmt.Sprintf("%d messages (%d bytes) wait to be sent already, of at most %d (%d bytes); nothing was sent",
			b.count, b.bytes, b.config.MaxWaiting, b.config.MaxWaitingBytes))
	}
	b.account(len(list), j.bytes)
	waiting, worked := b.by[at]
	b.by[at] = append(waiting, j)
	if !worked {
		b.workers.Go(func() { b.work(at) })
	}
	return nil
}

func (b *backlogs) account(messages, bytes int) {
	b.count += messages
	b.bytes += bytes
	b.metrics.waiting.Set(float64(b.count))
	b.metrics.waitingBytes.Set(float64(b.bytes))
}

// work sends the messages of a backlog until it is empty.
func (b *backlogs) work(at target) {
	for {
		j := b.next(at)
		if j == nil {
			return
		}
		status, err := b.send(j)
		b.finish(j, status, err)
		if txn.IsMaybeSent(err) {
			b.awaitLife(at.queue.Broker)
		}
	}
}

// awaitLife waits until a silent broker answers again. Otherwise each waiting message would be written to it, and become as
// uncertain as the one whose reply is missing.
func (b *backlogs) awaitLife(broker string) {
	limit := time.Now().Add(b.config.Timing.AsyncWithin)
	for next := firstRetry; b.ctx.Err() == nil && time.Now().Before(limit); next = min(2*next, maxRetry) {
		ctx, cancel := context.WithTimeout(b.ctx, b.config.Timing.AnswerWithin)
		err := b.broker.Probe(ctx, broker)
		cancel()
		if err == nil {
			return
		}
		pause.For(b.ctx, pause.About(next))
	}
}

func (b *backlogs) next(at target) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.by[at]
	if len(waiting) == 0 {
		delete(b.by, at)
		return nil
	}
	j := waiting[0]
	waiting[0] = nil
	b.by[at] = waiting[1:]
	return j
}

// send tries until the broker has stored or refused the messages, or may have stored them, or their time is over. Messages
// whose time is over already are tried once.
func (b *backlogs) send(j *job) (txn.SendStatus, error) {
	for next := firstRetry; ; next = min(2*next, maxRetry) {
		if b.ctx.Err() != nil {
			return "", &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnreachable, Words: "the service stopped", Cause: b.ctx.Err()}
		}
		status, err := publishOnce(b.ctx, b.broker, b.config.Timing.AnswerWithin, j.list)
		if !txn.IsUnsent(err) {
			return status, err
		}
		wait := pause.About(next)
		if time.Until(j.expires) < wait {
			return "", err
		}
		pause.For(b.ctx, wait)
	}
}

// finish reports the outcome in metrics and log.
func (b *backlogs) finish(j *job, status txn.SendStatus, err error) {
	result := outcome(status, err)
	if errors.Is(err, context.Canceled) && result == statusNotSent {
		result = statusDropped
	}
	b.metrics.count(ModeAsync, j.list, result, err == nil)
	b.mu.Lock()
	b.account(-len(j.list), -j.bytes)
	if err != nil {
		b.lost += len(j.list)
	}
	b.mu.Unlock()
	level := slog.LevelDebug
	switch {
	case err != nil:
		level = slog.LevelError
	case status != txn.SendOK:
		level = slog.LevelWarn
	}
	if !b.log.Enabled(b.ctx, level) {
		return
	}
	first := &j.list[0]
	attrs := []slog.Attr{
		slog.String("topic", first.Topic), slog.String("queue", first.Queue.String()), slog.String("status", result),
		slog.Any("message_ids", ids(j.list)),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	b.log.LogAttrs(context.WithoutCancel(b.ctx), level, "message of mode async", attrs...)
}

// drain refuses new messages, and waits until the others are sent or ctx ends.
func (b *backlogs) drain(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	before, waiting := b.lost, b.count
	b.mu.Unlock()
	defer b.giveUp()
	done := make(chan struct{})
	go func() { b.workers.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	b.giveUp()
	<-done
	return fmt.Errorf("%d of %d messages of mode async were not confirmed before the stop", b.lost-before, waiting)
}
