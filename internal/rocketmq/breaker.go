package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// slowAnswer is how long a message takes, or an attempt at one, from which on the broker is taken not to store as it should.
	slowAnswer = time.Second
	// refusalsInRow is how many messages a broker has to refuse at once, one after the other, to be taken to refuse all.
	refusalsInRow = 3
	// Pauses between two trials.
	firstTrialPause = 100 * time.Millisecond
	maxTrialPause   = 2 * time.Second
)

// breaker keeps half messages from a broker that does not store them, or not as safely as it was told to: a master whose
// slave is away lets each of them wait for its timeout, though it answers all else at once. While it is open, a half message
// of our own is tried from time to time, one at a time; it closes when any message is stored. Each broker has one. Safe for
// concurrent use.
type breaker struct {
	broker string
	start  time.Time
	good   atomic.Int64 // when the latest message was sent that is stored, after start
	row    atomic.Int32 // refusals at once, one after the other
	trials atomic.Int64
	outage atomic.Pointer[outage] // nil: the breaker is closed; set with mu held

	mu     sync.Mutex
	trying bool // somebody tries until it is closed
}

// outage is why a breaker is open.
type outage struct {
	since time.Time
	why   string
	slow  bool        // what is sent may be stored, or takes its time: so it is with normal messages, too
	try   atomic.Bool // one request may still look for itself
}

// finding is what one message tells about its broker.
type finding int

const (
	tellsNothing finding = iota
	tellsStored
	tellsRefused // at once, and not for the message's or the topic's sake
	tellsSlow    // it is not known to be stored, or not as safely as the broker was told to, and took its time
)

func findingOf(took time.Duration, status remoting.SendStatus, err error) finding {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	switch {
	case err == nil && status == remoting.SendOK:
		return tellsStored
	case err == nil:
		return tellsSlow
	case !ok && took >= slowAnswer:
		return tellsSlow
	case ok && refusesAll(answer):
		return tellsRefused
	default:
		return tellsNothing
	}
}

// refusesAll: the answer is about the broker. A busy one takes more in a moment.
func refusesAll(answer *remoting.BrokerError) bool {
	switch sayingOf(answer).means {
	case maybeStored, notStored:
		return true
	case excluded, queueGone: // by brokerPermission, or rejectTransactionMessage; else it is about the topic
		return strings.Contains(answer.Remark, "the broker[")
	default:
		return false
	}
}

// admit returns the error for a half message that is not to be sent to the broker. One that is not connected says no by itself.
func (c *Client) admit(broker string) error {
	o := c.breakerOf(broker).outage.Load()
	if o == nil || o.try.CompareAndSwap(true, false) {
		return nil
	}
	if _, connected := c.remote.ConnectedSince(broker); !connected {
		return nil
	}
	return o.error(broker)
}

func (o *outage) error(broker string) *txn.SendError {
	return &txn.SendError{
		Outcome: txn.Unsent, Reason: txn.ReasonSuspended,
		Words: fmt.Sprintf("no half message could be stored by %s since %s: %s", broker, o.since.UTC().Format(time.TimeOnly), o.why),
	}
}

// observe takes what became of a message, which was sent at the time. It returns true when the breaker is open now, and
// the caller has to try until it is closed.
func (b *breaker) observe(sent time.Time, f finding, err *txn.SendError) (try bool) {
	at := int64(sent.Sub(b.start))
	if f == tellsStored {
		if b.row.Load() != 0 {
			b.row.Store(0)
		}
		for last := b.good.Load(); last < at && !b.good.CompareAndSwap(last, at); last = b.good.Load() {
		}
	}
	o := b.outage.Load()
	if f == tellsNothing || f == tellsStored && o == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o = b.outage.Load()
	switch {
	case f == tellsStored:
		if o != nil && sent.After(o.since) {
			b.outage.Store(nil)
		}
	case b.good.Load() > at: // what was sent later went well
	case o != nil: // told anew
		b.outage.Store(&outage{since: o.since, why: err.Answered(), slow: f == tellsSlow})
	case f == tellsSlow || b.row.Add(1) >= refusalsInRow:
		o = &outage{since: time.Now(), why: err.Answered(), slow: f == tellsSlow}
		o.try.Store(true)
		b.outage.Store(o)
		try, b.trying = !b.trying, true
	}
	return try
}

func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row.Store(0)
	b.outage.Store(nil)
}

// isClosed ends the trying when there is nothing to try any more.
func (b *breaker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = b.outage.Load() != nil
	return !b.trying
}

// breakerOf returns the broker's breaker.
func (c *Client) breakerOf(broker string) *breaker {
	if b, ok := c.breakers.Load(broker); ok {
		return b.(*breaker)
	}
	b, _ := c.breakers.LoadOrStore(broker, &breaker{broker: broker, start: time.Now()})
	return b.(*breaker)
}

// judge returns the error of a message, or nil when the broker stored it, with whatever status, and lets the broker's breaker
// know.
func (c *Client) judge(m *txn.Message, sent time.Time, status remoting.SendStatus, err error) error {
	f := findingOf(time.Since(sent), status, err)
	var why *txn.SendError
	switch {
	case err != nil:
		why = messageError(m.Topic, err)
	case status != remoting.SendOK:
		why = storedWith(status, txn.Unsent)
	}
	if b := c.breakerOf(m.Queue.Broker); b.observe(sent, f, why) {
		c.startTrials(b, m, why)
	}
	if err == nil {
		return nil
	}
	return why
}

// startTrials tries until the breaker is closed.
func (c *Client) startTrials(b *breaker, m *txn.Message, why *txn.SendError) {
	c.log.WarnContext(c.ctx, "no half messages are sent to the broker until it stores one", "broker", b.broker, "why", why.Answered(), "error", why)
	trial := txn.Message{Topic: m.Topic, Queue: m.Queue, Kind: txn.ProbeKind, Body: []byte("{}")}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.loops.Go(func() { c.tryAgain(b, trial) })
	}
}

// tryAgain works until the breaker is closed.
func (c *Client) tryAgain(b *breaker, m txn.Message) {
	began := time.Now()
	for wait := firstTrialPause; pause.For(c.ctx, pause.About(wait)) && !b.isClosed(); wait = min(2*wait, maxTrialPause) {
		if !slices.Contains(c.Brokers(), b.broker) || c.try(b, m) { // where it is away for good nothing is routed to it
			b.close()
		}
	}
	if c.ctx.Err() == nil {
		c.log.InfoContext(c.ctx, "half messages are sent to the broker again", "broker", b.broker, "after", time.Since(began).Round(time.Millisecond).String())
	}
}

// try stores one half message and rolls it back. It says whether requests may try, too: also where the answer was about the
// topic, of which they know more.
func (c *Client) try(b *breaker, m txn.Message) bool {
	b.trials.Add(1)
	ctx, cancel := context.WithTimeout(c.ctx, c.timing.AnswerWithin)
	defer cancel()
	m.UniqKey = c.NewUniqKey()
	half, err := c.storeHalf(ctx, m)
	if err != nil {
		answer, ok := errors.AsType[*remoting.BrokerError](err)
		return ok && !refusesAll(answer) && txn.ReasonOf(err) != txn.ReasonBusy
	}
	if err := c.takeBack(ctx, half); err != nil {
		c.log.DebugContext(ctx, "rollback not confirmed, left to a check-back", "message_id", half.UniqKey, "error", err)
	}
	return true
}

// Stores is false while a broker is known not to store what it is sent as it should.
func (c *Client) Stores(broker string) bool {
	o := c.breakerOf(broker).outage.Load()
	return o == nil || !o.slow
}
