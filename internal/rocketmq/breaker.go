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
	// refusalsInRow is how many messages a broker refuses one after the other until it is taken to refuse all.
	refusalsInRow = 3
	// Pauses between two trials.
	firstTrialPause = 100 * time.Millisecond
	maxTrialPause   = 2 * time.Second
)

// breaker holds half messages back from a broker that does not store them, or less safely than it was told to. A master whose
// slave is away is such a broker: each half message waits for the timeout, while everything else is answered at once. As long
// as the breaker is open, the service tries half messages of its own, one at a time; the breaker closes when any message is
// stored. Each broker has a breaker. Safe for concurrent use.
type breaker struct {
	broker string
	start  time.Time
	good   atomic.Int64 // when the latest stored message was sent, counted from start
	row    atomic.Int32 // refusals in a row
	trials atomic.Int64
	outage atomic.Pointer[outage] // nil: the breaker is closed; set with mu held

	mu     sync.Mutex
	trying bool // a goroutine tries until the breaker is closed
}

// outage is why a breaker is open.
type outage struct {
	since time.Time
	why   string
	slow  bool        // messages may be stored, or take their time: normal ones, too
	try   atomic.Bool // one more request may try for itself
}

// finding is what one message shows about its broker.
type finding int

const (
	tellsNothing finding = iota
	tellsStored
	tellsRefused // at once, and not because of the message or the topic
	tellsSlow    // the message took its time, and is not known to be stored as safely as the broker was told to
)

func findingOf(took, slow time.Duration, status remoting.SendStatus, err error) finding {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	switch {
	case err == nil && status == remoting.SendOK:
		return tellsStored
	case err == nil:
		return tellsSlow
	case !ok && took >= slow:
		return tellsSlow
	case ok && refusesAll(answer):
		return tellsRefused
	default:
		return tellsNothing
	}
}

// refusesAll reports whether the answer is about the broker as a whole. A busy broker takes more in a moment.
func refusesAll(answer *remoting.BrokerError) bool {
	switch sayingOf(answer).means {
	case maybeStored, notStored:
		return true
	case excluded, queueGone: // because of brokerPermission or rejectTransactionMessage; otherwise because of the topic
		return strings.Contains(answer.Remark, "the broker[")
	default:
		return false
	}
}

// admit returns an error when half messages are held back from the broker. Without a connection they fail by themselves.
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

// observe notes the finding of a message that was sent at the time. It returns true when the breaker has opened and the caller
// has to try until it is closed.
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
	case b.good.Load() > at: // a later message was stored
	case o != nil: // the reason may be another one now
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

// isClosed reports whether the breaker is closed, and so ends the trials.
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

// judge returns the error of a message, or nil when the broker stored it with any status, and informs the broker's breaker.
func (c *Client) judge(m *txn.Message, sent time.Time, status remoting.SendStatus, err error) error {
	f := findingOf(time.Since(sent), c.timing.SlowAnswer, status, err)
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

// startTrials begins to try half messages until the breaker is closed.
func (c *Client) startTrials(b *breaker, m *txn.Message, why *txn.SendError) {
	c.log.WarnContext(c.ctx, "no half messages are sent to the broker until it stores one", "broker", b.broker, "why", why.Answered(), "error", why)
	trial := txn.Message{Topic: m.Topic, Queue: m.Queue, Kind: txn.ProbeKind, Body: []byte("{}")}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.loops.Go(func() { c.tryAgain(b, trial) })
	}
}

// tryAgain tries half messages until the breaker is closed.
func (c *Client) tryAgain(b *breaker, m txn.Message) {
	began := time.Now()
	for wait := firstTrialPause; pause.For(c.ctx, pause.About(wait)) && !b.isClosed(); wait = min(2*wait, maxTrialPause) {
		if !slices.Contains(c.Brokers(), b.broker) || c.try(b, m) { // nothing is routed to a broker that is away for good
			b.close()
		}
	}
	if c.ctx.Err() == nil {
		c.log.InfoContext(c.ctx, "half messages are sent to the broker again", "broker", b.broker, "after", time.Since(began).Round(time.Millisecond).String())
	}
}

// try stores one half message and rolls it back. It returns whether requests may try again: also after an answer about the
// topic, because theirs may be another one.
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

// Stores is false while a broker is known not to store messages as safely as it was told to.
func (c *Client) Stores(broker string) bool {
	o := c.breakerOf(broker).outage.Load()
	return o == nil || !o.slow
}
