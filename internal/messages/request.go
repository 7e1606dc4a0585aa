package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Mode says how long a request waits.
type Mode string

// The modes.
const (
	ModeSync   Mode = "sync"   // for the broker's answer
	ModeAsync  Mode = "async"  // for nothing: sent in the background
	ModeOneWay Mode = "oneway" // until it is handed to the connection: the broker is not asked for an answer
)

// Limits of a request.
const (
	// MaxBatch is how many messages a batch can have. The broker stores a batch under one lock, so a larger one delays others.
	MaxBatch = 1000
	// MaxDelayLevel is the last of the broker's default delay levels, see DelayLevels.
	MaxDelayLevel = 18
	// MaxDelay is how far ahead a time of delivery can be: the broker's default timerMaxDelaySec.
	MaxDelay = 72 * time.Hour
)

// DelayLevels are what the broker's delay levels 1 to 18 mean by default (messageDelayLevel).
const DelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// Request is one message, or a batch for one queue, that a client wants to be sent.
type Request struct {
	Topic       string
	ShardKey    string
	SelectorArg json.RawMessage
	Mode        Mode // empty means ModeSync
	Messages    []Message
	Batch       bool
	DelayLevel  int       // 1 to 18; 0: none
	DeliverAt   time.Time // zero: at once
	Traceparent string
	Header      func(name string) string // of the HTTP request, for selectors; nil: there is none
}

// Message is one message of a request.
type Message struct {
	Body []byte
	JSON bool // whether the body is JSON, which selectors may look at
	txn.Labels
}

// at is the JSON Pointer of a message.
func (r *Request) at(i int) string {
	if !r.Batch {
		return ""
	}
	return fmt.Sprintf("/batch/%d", i)
}

// check returns the faults of a request that show without the broker.
func (r *Request) check(now time.Time) error {
	errs := txn.CheckShardKey(r.ShardKey)
	add := func(pointer, format string, args ...any) {
		errs = append(errs, txn.FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	switch r.Mode {
	case ModeSync, ModeAsync, ModeOneWay:
	default:
		add("/mode", "must be sync, async or oneway")
	}
	if r.Batch && len(r.Messages) == 0 {
		add("/batch", "must have at least one message")
	}
	if n := len(r.Messages); n > MaxBatch {
		add("/batch", "has %d messages, at most %d are allowed: send the others as another batch", n, MaxBatch)
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if len(m.Body) == 0 {
			add(r.at(i)+"/body", "body or body_base64 is required and must not be empty: RocketMQ has no empty messages")
		}
		errs = append(errs, m.Check(r.at(i), r.ShardKey)...)
	}
	r.checkDelay(now, add)
	if len(errs) > 0 {
		return txn.Invalid(errs...)
	}
	return nil
}

func (r *Request) checkDelay(now time.Time, add func(pointer, format string, args ...any)) {
	if r.DelayLevel < 0 || r.DelayLevel > MaxDelayLevel {
		add("/delay_level", "must be a level from 1 to %d: %s", MaxDelayLevel, DelayLevels)
	}
	if r.DelayLevel != 0 && !r.DeliverAt.IsZero() {
		add("/deliver_at", "cannot be given with delay_level: choose one of them")
	}
	if r.Batch && (r.DelayLevel != 0 || !r.DeliverAt.IsZero()) {
		add("/batch", "a batch cannot be delayed: RocketMQ stores it at once; send its messages one by one")
	}
	if r.DeliverAt.Sub(now) > MaxDelay {
		add("/deliver_at", "is more than 3 days ahead, which is the most that RocketMQ accepts (timerMaxDelaySec)")
	}
}

// list makes the messages, without their queue.
func (r *Request) list(newUniqKey func() string) []txn.Message {
	list := make([]txn.Message, len(r.Messages))
	for i := range r.Messages {
		m := &r.Messages[i]
		list[i] = txn.Message{
			UniqKey: newUniqKey(), Topic: r.Topic, Tag: m.Tag, Keys: m.Keys, ShardKey: r.ShardKey, Properties: m.Properties,
			Traceparent: r.Traceparent, Body: m.Body, DelayLevel: r.DelayLevel, DeliverAt: r.DeliverAt,
		}
	}
	return list
}

// checkSize refuses more bytes than the broker accepts at once, and says how many messages would fit.
func (r *Request) checkSize(list []txn.Message, size func(m *txn.Message) int) (total int, err error) {
	fit := 0
	for i := range list {
		total += size(&list[i])
		if total <= txn.MaxMessageSize {
			fit = i + 1
		}
	}
	switch {
	case fit == len(list):
		return total, nil
	case !r.Batch:
		return total, txn.Errorf(txn.CodePayloadTooLarge, "body and properties have %d bytes, the broker accepts %d", total, txn.MaxMessageSize)
	default:
		return total, txn.Errorf(txn.CodePayloadTooLarge,
			"the %d messages have %d bytes with their properties, the broker accepts %d at once: the first %d would fit; it is not split, since a batch is stored whole or not at all",
			len(list), total, txn.MaxMessageSize, fit)
	}
}

// topicError lists the topics of the configuration.
func topicError(topic string, known []string) error {
	message := "is required: one of the configuration's topics, " + strings.Join(known, ", ")
	if topic != "" {
		message = "is not one of the configuration's topics: " + strings.Join(known, ", ")
	}
	return txn.Invalid(txn.FieldError{Pointer: "/topic", Message: message})
}
