package broker

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Client is a process's connection to the brokers; see txn.Broker and the ports of delivery. It is safe for concurrent use.
type Client struct {
	// Checkback is called, in a goroutine of its own, when a broker asks about a half message.
	Checkback func(m txn.Message, h txn.Half)

	cluster *Cluster
	w       *world.World
	life    *world.Life
	prefix  string
	made    atomic.Int64
}

// usual is how long a frame takes at most when nothing happens to it.
const usual = 2 * time.Millisecond

// NewUniqKey returns a fresh UNIQ_KEY.
func (c *Client) NewUniqKey() string { return c.prefix + pad(strconv.FormatInt(c.made.Add(1), 10), 12) }

// question is exchange for what changes nothing: an answer that is missing leaves nothing open.
func (c *Client) question(ctx context.Context, to, what, about string, execute func(b *broker) (answer, error)) (answer, error) {
	a, err := c.exchange(ctx, to, what, about, time.Time{}, execute)
	if txn.IsMaybeSent(err) {
		err = unanswered(to)
	}
	return a, err
}

// exchange sends a request, and returns what the broker made of it. The broker executes it while it holds the cluster's
// mutex, at a moment of its own: perhaps after the caller has given up, or was killed.
func (c *Client) exchange(ctx context.Context, to, what, about string, writeBefore time.Time, execute func(b *broker) (answer, error)) (answer, error) {
	cl := c.cluster
	roll := c.w.Roll(c.life.Name, what, about+to)
	faulty := cl.faulty(roll)
	wait := roll.Within(usual)
	if faulty && roll.Chance(.2) { // a connection that has to be made first
		wait = roll.Within(2 * time.Second)
	}
	written := world.Sleep(ctx, wait)
	if faulty && roll.Chance(.05) {
		long := roll.Within(2 * cl.config.Timing.Lease())
		c.w.Trace(c.life.Name, "is stopped for %v before %s %s", long, what, about)
		c.life.Stop(long)
	}
	if !c.life.Pass(what) || !written || ctx.Err() != nil || !writeBefore.IsZero() && time.Now().After(writeBefore) {
		return answer{}, notSent(to)
	}
	cl.mu.Lock()
	b := cl.brokers[to]
	if b == nil || b.down {
		cl.mu.Unlock()
		return answer{}, notSent(to)
	}
	cut, stopped := b.cut, time.Until(b.stopped)
	cl.mu.Unlock()
	way, back := roll.Within(usual), roll.Within(usual)
	if !faulty && stopped <= 0 {
		if a, err, ok := c.atOnce(b, cut, what, way, back, execute); ok {
			return a, err
		}
		way = 0
	}
	replies := make(chan reply, 1)
	frame := frame{cluster: cl, b: b, cut: cut, execute: execute, replies: replies, back: back}
	fate := roll.Below(5)
	switch {
	case !faulty:
	case fate == 0: // it gets lost, and the connection with it
		c.w.Trace(c.life.Name, "%s %s: the frame is lost", what, about)
		return answer{}, c.missing(ctx, to, what, cut, roll.Between(usual, cl.config.Timing.ArriveWithin))
	case fate == 1: // it is executed, and nobody learns of it
		c.w.Trace(c.life.Name, "%s %s: the reply will be lost", what, about)
		frame.replies = nil
	default: // it takes its time
		way = roll.Within(cl.config.Timing.ArriveWithin)
		frame.queue = roll.Within(cl.config.Timing.BrokerQueue * 5 / 4)
		c.w.Trace(c.life.Name, "%s %s: the frame is executed in %v", what, about, way+frame.queue)
	}
	frame.wake = roll.Within(usual)
	if roll.Chance(.5) {
		frame.wake = roll.Within(cl.config.Timing.BrokerQueue)
	}
	c.w.After(way, frame.arrive)
	var timeout <-chan time.Time
	if frame.replies == nil {
		timer := time.NewTimer(way + frame.queue + roll.Within(cl.config.Timing.ArriveWithin))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case r := <-replies:
		if !c.life.Pass(what) {
			return answer{}, replyMissing(to)
		}
		return r.answer, r.err
	case <-timeout:
	case <-cut:
	case <-ctx.Done():
	case <-c.life.Dead():
	}
	c.life.Pass(what)
	return answer{}, replyMissing(to)
}

// atOnce is the way of most requests, without a goroutine of its own. It is not ok when the broker was stopped meanwhile.
func (c *Client) atOnce(b *broker, cut chan struct{}, what string, way, back time.Duration, execute func(b *broker) (answer, error)) (a answer, err error, ok bool) { //nolint:revive,staticcheck // ok comes last
	time.Sleep(way)
	c.cluster.mu.Lock()
	switch {
	case b.down || b.cut != cut:
		c.cluster.mu.Unlock()
		c.life.Pass(what)
		return answer{}, replyMissing(b.name), true
	case time.Until(b.stopped) > 0:
		c.cluster.mu.Unlock()
		return answer{}, nil, false
	}
	a, err = execute(b)
	c.cluster.mu.Unlock()
	time.Sleep(back)
	if !c.life.Pass(what) {
		return answer{}, replyMissing(b.name), true
	}
	return a, err, true
}

func (c *Client) missing(ctx context.Context, to, what string, cut <-chan struct{}, after time.Duration) error {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cut:
	case <-ctx.Done():
	case <-c.life.Dead():
	}
	c.life.Pass(what)
	return replyMissing(to)
}

// answer is what a broker says.
type answer struct {
	half  txn.Half
	count int
	reach txn.Reach
}

type reply struct {
	answer
	err error
}

// frame is a request on its way.
type frame struct {
	cluster     *Cluster
	b           *broker
	cut         chan struct{} // of the broker's life in which it was sent
	queue, back time.Duration
	wake        time.Duration // until a broker that was stopped comes to what it reads when it wakes
	execute     func(b *broker) (answer, error)
	replies     chan<- reply
}

// arrive lets the frame wait in the broker's queue of requests, which drops what waits too long.
func (f *frame) arrive() {
	if f.queue > f.cluster.config.Timing.BrokerQueue {
		f.reply(reply{err: busy(f.b.name)})
		return
	}
	if f.queue > 0 {
		time.Sleep(f.queue)
	}
	f.cluster.mu.Lock()
	for wait := time.Until(f.b.stopped); wait > 0; wait = time.Until(f.b.stopped) {
		f.cluster.mu.Unlock()
		time.Sleep(wait + f.wake)
		f.cluster.mu.Lock()
	}
	if f.b.down || f.b.cut != f.cut {
		f.cluster.mu.Unlock()
		return
	}
	a, err := f.execute(f.b)
	f.cluster.mu.Unlock()
	f.reply(reply{a, err})
}

func (f *frame) reply(r reply) {
	if f.replies != nil {
		time.Sleep(f.back)
		f.replies <- r
	}
}

// SendHalf stores a half message; see txn.Broker.
func (c *Client) SendHalf(ctx context.Context, m txn.Message) (txn.Half, error) {
	sent := time.Now().Truncate(time.Millisecond)
	a, err := c.exchange(ctx, m.Queue.Broker, "half", m.TxID, time.Time{}, func(b *broker) (answer, error) {
		if m.TxID != "" && c.cluster.closed[m.Queue] {
			return answer{}, noQueue(m.Queue)
		}
		return answer{half: c.cluster.storeHalf(b, m, sent)}, nil
	})
	if c.w.Tracing() && m.TxID != "" {
		c.w.Trace(c.life.Name, "SendHalf %s %s to %s: %v", m.TxID, m.UniqKey, m.Queue, err)
	}
	return a.half, err
}

// End sends END_TRANSACTION; see txn.Broker.
func (c *Client) End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error {
	_, err := c.exchange(ctx, h.Broker, "end", h.UniqKey, writeBefore, func(b *broker) (answer, error) {
		if !c.cluster.end(b, h, d) {
			return answer{}, halfGone(h)
		}
		return answer{}, nil
	})
	if c.w.Tracing() {
		c.w.Trace(c.life.Name, "End %s %s: %v", h.UniqKey, d, err)
	}
	return err
}

// Send sends a normal message; see delivery.
func (c *Client) Send(ctx context.Context, m txn.Message, writeBefore time.Time) error {
	return c.SendBatch(ctx, []txn.Message{m}, writeBefore)
}

// SendBatch sends several messages of one queue; see delivery.
func (c *Client) SendBatch(ctx context.Context, messages []txn.Message, writeBefore time.Time) error {
	messages = slices.Clone(messages)
	q := messages[0].Queue
	_, err := c.exchange(ctx, q.Broker, "send", messages[0].TxID, writeBefore, func(b *broker) (answer, error) {
		if c.cluster.closed[q] {
			return answer{}, noQueue(q)
		}
		for _, m := range messages {
			c.cluster.show(b, m)
		}
		return answer{}, nil
	})
	if c.w.Tracing() {
		for _, m := range messages {
			c.w.Trace(c.life.Name, "Send %s %s to %s: %v", m.TxID, m.UniqKey, q, err)
		}
	}
	return err
}

// Size is what a message takes of a batch.
func (*Client) Size(m *txn.Message) int { return len(m.Body) + 100 }

// Visible counts the copies of a message in its queue; see delivery. What the index knows is there. Where it may have a hole,
// because it does not know the half message either, or is not known to tell, the queue is read.
func (c *Client) Visible(ctx context.Context, m txn.Message, first int64, _ time.Time, indexed bool) (int, error) {
	a, err := c.question(ctx, m.Queue.Broker, "visible", m.TxID, func(b *broker) (answer, error) {
		now := time.Now()
		inIndex, inQueue := 0, 0
		for _, shown := range b.copies {
			if shown.UniqKey != m.UniqKey {
				continue
			}
			if c.cluster.isIndexed(b, shown.place) {
				inIndex++
			}
			if !shown.queued.After(now) && shown.Queue == m.Queue {
				inQueue++
			}
		}
		complete := slices.ContainsFunc(b.halves, func(h *half) bool { return h.offset == first && c.cluster.isIndexed(b, h.place) })
		if inIndex > 0 || indexed && complete {
			return answer{count: inIndex}, nil
		}
		return answer{count: inQueue}, nil
	})
	if c.w.Tracing() {
		c.w.Trace(c.life.Name, "Visible %s %s (by the index: %t): %d, %v", m.TxID, m.UniqKey, indexed, a.count, err)
	}
	return a.count, err
}

// Probe returns when the broker has answered something that was sent after the call began.
func (c *Client) Probe(ctx context.Context, name string) error {
	_, err := c.question(ctx, name, "probe", "", func(*broker) (answer, error) { return answer{}, nil })
	return err
}

// Reach says how far a half message has come; see delivery.
func (c *Client) Reach(ctx context.Context, h txn.Half) (txn.Reach, error) {
	a, err := c.question(ctx, h.Broker, "reach", "", func(b *broker) (answer, error) {
		for _, entry := range b.halves {
			if entry.offset != h.CommitLogOffset || entry.gone {
				continue
			}
			switch {
			case c.cluster.isIndexed(b, entry.place):
				return answer{reach: txn.ReachIndex}, nil
			case !entry.queued.After(time.Now()):
				return answer{reach: txn.ReachQueue}, nil
			}
		}
		return answer{}, nil
	})
	return a.reach, err
}

// TxID returns the transaction whose half message this is.
func (c *Client) TxID(h txn.Half) string {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	if b := c.cluster.brokers[h.Broker]; h.QueueOffset >= 0 && h.QueueOffset < int64(len(b.halves)) {
		return b.halves[h.QueueOffset].message.TxID
	}
	return ""
}

// Stores is false while a broker is known not to store what it is sent.
func (*Client) Stores(string) bool { return true }

// Brokers returns the names of the masters.
func (c *Client) Brokers() []string { return slices.Clone(c.cluster.config.Brokers) }
