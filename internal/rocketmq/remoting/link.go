package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Waiting times of a link.
const (
	firstBackoff     = 100 * time.Millisecond
	maxBackoff       = 2 * time.Second
	missedHeartbeats = 3 // heartbeats in a row without an answer, after which the connection is given up
)

// link holds the connection to one master broker. It dials, sends a heartbeat at once and then at intervals, and dials
// again with growing pauses when the connection breaks.
type link struct {
	name, addr string
	opts       *connOptions
	heartbeat  *request
	interval   time.Duration // between heartbeats
	patience   time.Duration // how long a heartbeat waits for its answer
	log        *slog.Logger
	cancel     context.CancelFunc
	done       chan struct{} // closed when run has returned
	settled    chan struct{} // closed after the first attempt to connect and its heartbeat

	current atomic.Pointer[conn]

	mu       sync.Mutex
	since    time.Time // when the present connection was made
	lastErr  error
	lastBeat time.Time // when the last heartbeat was answered
	version  int       // of the broker, as that answer says
	listed   time.Time // when a name server last listed the broker
}

// conn returns the live connection, or why there is none.
func (l *link) conn() (*conn, error) {
	if c := l.current.Load(); c != nil {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErr != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, l.lastErr)
	}
	return nil, ErrNotConnected
}

// run works until ctx ends.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	settle := sync.OnceFunc(func() { close(l.settled) })
	defer settle()
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		c, err := dial(ctx, l.name, l.addr, l.opts)
		if err == nil {
			backoff = firstBackoff
			err = l.serve(ctx, c, settle)
		}
		if ctx.Err() != nil {
			return
		}
		l.note(ctx, err)
		settle()
		pause.For(ctx, pause.About(backoff))
	}
}

// serve uses one connection until it breaks or ctx ends. It queues the first heartbeat before any caller can use the
// connection.
func (l *link) serve(ctx context.Context, c *conn, settle func()) error {
	defer c.close()
	beat, err := c.enqueue(l.heartbeat, time.Time{})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.since = time.Now()
	l.mu.Unlock()
	l.current.Store(c)
	defer l.current.Store(nil)
	l.log.InfoContext(ctx, "broker connected", "broker", l.name, "addr", l.addr)
	for missed := 0; missed < missedHeartbeats; {
		err := l.awaitBeat(ctx, c, beat)
		settle()
		missed++
		if !errors.Is(err, ErrReplyMissing) {
			missed = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.broken:
			return c.cause()
		case <-time.After(l.interval):
		}
		if beat, err = c.enqueue(l.heartbeat, time.Time{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d heartbeats without an answer", missedHeartbeats)
}

// awaitBeat waits for a heartbeat's answer and stores the outcome.
func (l *link) awaitBeat(ctx context.Context, c *conn, beat *call) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	reply, err := c.wait(ctx, l.heartbeat.op, beat)
	if err == nil {
		err = answer(l.heartbeat.op, c.addr, &reply)
		l.mu.Lock()
		l.version = reply.Version
		l.mu.Unlock()
	}
	l.note(ctx, err)
	return err
}

// note stores the outcome of an attempt. It logs each new kind of failure once.
func (l *link) note(ctx context.Context, err error) {
	l.mu.Lock()
	before := l.lastErr
	l.lastErr = err
	if err == nil {
		l.lastBeat = time.Now()
	}
	l.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		l.log.WarnContext(ctx, "broker connection", "broker", l.name, "addr", l.addr, "err", err)
	}
}

// stop ends run and waits for it.
func (l *link) stop() {
	l.cancel()
	<-l.done
}

// answer returns a BrokerError for a reply with a code other than success.
func answer(op, addr string, reply *Frame) error {
	if reply.Code == CodeSuccess {
		return nil
	}
	return &BrokerError{Op: op, Addr: addr, Code: reply.Code, Remark: reply.Remark}
}

func (l *link) markListed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = time.Now()
}

func (l *link) unlistedFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.listed)
}
