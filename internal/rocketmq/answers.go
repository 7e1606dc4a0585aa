package rocketmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// meaning is what a broker's answer to a message says of that message.
type meaning int

const (
	maybeStored meaning = iota // the broker failed, or gave an answer that nobody knows: it may have stored the message before
	notStored                  // the message can be sent again
	busy                       // the same, after a pause
	noQueue                    // the topic, or this queue of it, is not there or must not be written now
	forbidden                  // nothing of this sort is taken until somebody changes the broker's settings or permissions
	tooLarge                   // a message of this size is never taken
	invalid                    // this message is never taken
)

// saying is how brokers say something. text is for everybody; in it %s stands for the topic.
type saying struct {
	code    int
	remark  string // a part of it; empty: whatever it is
	means   meaning
	pointer string // the field that is invalid
	text    string
}

const (
	pointerDeliverAt = "/deliver_at"
	pointerKeys      = "/keys"
)

const (
	textNoTopic      = "topic %s does not exist"
	textNotPermitted = "the broker does not permit writing to topic %s"
	textTooLarge     = "the broker refused the message: payload or properties are larger than it accepts"
	textKeyMissing   = "at least one key is required: the topic is compacted (cleanup.policy=COMPACTION), and RocketMQ keeps the last message of each key"
)

// sayings are the answers of RocketMQ 4.9 to 5.5 to SEND_MESSAGE and SEND_BATCH_MESSAGE (SendMessageProcessor and its base
// class, MessageExtEncoder, AclException, BrokerFastFailure). The first one that fits counts. Where one code has several
// meanings, the remark tells them apart.
var sayings = []saying{
	{remoting.CodeMessageIllegal, "message key is missing", invalid, pointerKeys, textKeyMissing},
	{remoting.CodeMessageIllegal, "timer message illegal", invalid, pointerDeliverAt, "is further ahead than the broker accepts (timerMaxDelaySec)"},
	{remoting.CodeMessageIllegal, "length not matched", tooLarge, "", textTooLarge},
	{remoting.CodeMessageIllegal, "must be less", tooLarge, "", textTooLarge},
	{remoting.CodeMessageIllegal, "", invalid, "", "the broker refused the message as illegal"},

	{remoting.CodeSystemError, "timer message is not enabled", invalid, pointerDeliverAt, "the broker does not deliver at a given time: its timerWheelEnable is off"},
	{remoting.CodeSystemError, "timer message is under flow control", busy, "", ""},
	{remoting.CodeSystemError, "size exceeded", tooLarge, "", "the broker refused the batch: it is larger than it accepts (maxMessageSize)"},
	{remoting.CodeSystemError, "in-sync replicas not enough", notStored, "", ""},
	{remoting.CodeSystemError, "broker unable to service", notStored, "", ""},
	{remoting.CodeSystemError, "create mapped file failed", notStored, "", ""},
	{remoting.CodeSystemError, "LMQ_CONSUME_QUEUE_NUM_EXCEEDED", notStored, "", ""},
	{remoting.CodeSystemError, "AclException", forbidden, "", textNotPermitted},
	{remoting.CodeSystemError, "", maybeStored, "", ""},

	{remoting.CodeSystemBusy, "", busy, "", ""},
	{remoting.CodeFlowControl, "", busy, "", ""},
	{remoting.CodeNotSupported, "", notStored, "", ""},
	{remoting.CodeServiceUnavailable, "", notStored, "", ""},
	{remoting.CodeSlaveNotAvailable, "", notStored, "", ""}, // without a place: else it is a status
	{remoting.CodeNoPermission, "sending transaction message is forbidden", forbidden, "", "the broker takes no half messages (rejectTransactionMessage)"},
	{remoting.CodeNoPermission, "", noQueue, "", textNotPermitted},
	{remoting.CodeTopicNotExist, "", noQueue, "", textNoTopic},
	{remoting.CodeInvalidParameter, "", noQueue, "", ""},
	{remoting.CodeNotLeader, "", noQueue, "", ""},
	{remoting.CodeIllegalOperation, "", notStored, "", ""},
	{remoting.CodeGoAway, "", notStored, "", ""},
}

// sayingOf reads an answer. One that is not in the list leaves everything open.
func sayingOf(answer *remoting.BrokerError) saying {
	for _, s := range sayings {
		if s.code == answer.Code && strings.Contains(answer.Remark, s.remark) {
			return s
		}
	}
	return saying{code: answer.Code, means: maybeStored}
}

// sendError says what is known of messages that were not accepted.
func sendError(topic string, err error) error {
	if errors.Is(err, errNoRoute) {
		return txn.BrokerUnavailable(noSuchQueue(err), "no name server tells where topic %s is", topic)
	}
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	if !ok {
		return callError(err)
	}
	err = answered(err)
	s := sayingOf(answer)
	text := strings.Replace(s.text, "%s", topic, 1)
	if answer.Code == remoting.CodeNoPermission || s.means == forbidden {
		text += ": " + txn.Why(err)
	}
	switch s.means {
	case invalid:
		e := txn.Invalid(txn.FieldError{Pointer: s.pointer, Message: text})
		e.Cause = err
		return e
	case tooLarge:
		return &txn.Error{Code: txn.CodePayloadTooLarge, Detail: text, Cause: err}
	case forbidden:
		return txn.BrokerUnavailable(err, "%s", text)
	case noQueue:
		if text == "" {
			return fmt.Errorf("%w: %w", txn.ErrNotSent, noSuchQueue(err))
		}
		return txn.BrokerUnavailable(noSuchQueue(err), "%s", text)
	case busy:
		return fmt.Errorf("%w: %w: %w", txn.ErrNotSent, txn.ErrBusy, err)
	case notStored:
		return fmt.Errorf("%w: %w", txn.ErrNotSent, err)
	default:
		return fmt.Errorf("%w: %w", txn.ErrReplyMissing, err)
	}
}
