package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Checkback is a broker's question about the outcome of a half message's local transaction. The broker asks about a new
// copy each time, so an END_TRANSACTION must name the copy's offsets given here, and say that it answers a check-back.
// For "not yet" there is no answer; the broker asks again.
type Checkback struct {
	Broker          string // name, to which the END_TRANSACTION goes
	Addr            string
	Topic           string // the real one
	Group           string
	UniqKey         string // the same in all copies
	TransactionID   string
	OffsetMsgID     string // the copy's
	CommitLogOffset int64  // the copy's
	HalfQueueOffset int64  // the copy's; tranStateTableOffset on the wire
	Times           int    // how often the broker has asked before; 0 if it does not say
	Message         Message
}

// OnCheckback sets the handler of check-backs; call it before Start. Several goroutines call the handler
// (Config.CheckbackLimit); its context ends with the client. A panic in it is logged, and the broker asks again.
func (c *Client) OnCheckback(handle func(ctx context.Context, cb Checkback)) {
	c.checkbacks.handle = handle
}

// onRequest handles a broker's request. A connection's reader calls it.
func (c *Client) onRequest(conn *conn, f Frame) {
	if f.Code == codeCheckTransaction {
		cb, err := decodeCheckback(conn, &f)
		if err != nil {
			c.log.WarnContext(c.ctx, "check-back not understood", "broker", conn.broker, "err", err)
			return
		}
		c.checkbacks.offer(c.ctx, cb)
		return
	}
	if !f.isOneWay() {
		_ = conn.oneWay(&request{op: "refusal", code: CodeNotSupported, flag: flagReply, opaque: f.Opaque}, time.Time{})
	}
}

func decodeCheckback(conn *conn, f *Frame) (Checkback, error) {
	m, _, err := decodeMessage(f.Body)
	if err != nil {
		return Checkback{}, err
	}
	cb := Checkback{
		Broker: conn.broker, Addr: conn.addr, Topic: m.Topic, Group: m.Properties.Get(PropGroup),
		UniqKey: m.UniqKey(), TransactionID: f.Get("transactionId"), OffsetMsgID: f.Get("offsetMsgId"), Message: m,
	}
	if cb.CommitLogOffset, err = strconv.ParseInt(f.Get("commitLogOffset"), 10, 64); err != nil {
		return Checkback{}, fmt.Errorf("commit-log offset of %s: %w", cb.UniqKey, err)
	}
	if cb.HalfQueueOffset, err = strconv.ParseInt(f.Get("tranStateTableOffset"), 10, 64); err != nil {
		return Checkback{}, fmt.Errorf("half queue offset of %s: %w", cb.UniqKey, err)
	}
	if cb.UniqKey == "" {
		cb.UniqKey = f.Get("msgId")
	}
	if bname := f.Get("bname"); bname != "" {
		cb.Broker = bname
	}
	cb.Times, _ = strconv.Atoi(m.Properties.Get(PropCheckTimes)) // absent at first
	return cb, nil
}

// checkbacks hands check-backs from the connections' readers to a bounded
// number of handlers.
type checkbacks struct {
	handle  func(ctx context.Context, cb Checkback)
	log     *slog.Logger
	limit   int
	queue   chan Checkback
	stop    chan struct{}
	workers sync.WaitGroup

	received, dropped atomic.Int64
}

func newCheckbacks(limit, queued int, log *slog.Logger) *checkbacks {
	return &checkbacks{limit: limit, log: log, queue: make(chan Checkback, queued), stop: make(chan struct{})}
}

func (cs *checkbacks) start(ctx context.Context) {
	if cs.handle == nil {
		return
	}
	for range cs.limit {
		cs.workers.Go(func() { cs.work(ctx) })
	}
}

// offer never blocks. It drops a check-back when too many wait, because the broker asks again.
func (cs *checkbacks) offer(ctx context.Context, cb Checkback) {
	cs.received.Add(1)
	select {
	case cs.queue <- cb:
	default:
		if cs.dropped.Add(1) == 1 {
			cs.log.WarnContext(ctx, "check-backs dropped: too many at a time", "broker", cb.Broker)
		}
	}
}

func (cs *checkbacks) work(ctx context.Context) {
	for {
		select {
		case <-cs.stop:
			return
		case cb := <-cs.queue:
			cs.call(ctx, cb)
		}
	}
}

func (cs *checkbacks) call(ctx context.Context, cb Checkback) {
	defer func() {
		if p := recover(); p != nil {
			cs.log.ErrorContext(ctx, "check-back handler panicked",
				"uniq_key", cb.UniqKey, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	cs.handle(ctx, cb)
}

// drain stops the handlers after their present check-backs, and waits for them until ctx ends. Other members of the
// group will be asked about those that wait.
func (cs *checkbacks) drain(ctx context.Context) error {
	close(cs.stop)
	done := make(chan struct{})
	go func() {
		cs.workers.Wait()
		close(done)
	}()
	if !waitFor(ctx, done) {
		return fmt.Errorf("check-back handlers are still running: %w", ctx.Err())
	}
	return nil
}
