package remoting

import (
	"errors"
	"fmt"
)

// The two kinds of a call that got no answer. Each such error is exactly one of them.
var (
	// ErrNotSent says that the request did not reach the broker and never will.
	ErrNotSent = errors.New("request not sent")
	// ErrReplyMissing says that the request may have reached the broker. It may even be executed later, because a
	// stopped broker reads its socket when it wakes.
	ErrReplyMissing = errors.New("request may have been sent, its reply is missing")
)

// Causes of a failed call. Errors of net and context are others.
var (
	// ErrClosed means that this side has closed the client or the connection.
	ErrClosed = errors.New("client is closed")
	// ErrNotConnected means that there is no connection to the broker now; it is
	// being re-established in the background.
	ErrNotConnected = errors.New("not connected")
	// ErrUnknownBroker means that no name server has listed that broker.
	ErrUnknownBroker = errors.New("unknown broker")
	// ErrWriteBefore means that the request's WriteBefore passed before it could be written.
	ErrWriteBefore = errors.New("time limit for writing has passed")
	// ErrQueueFull means that too many bytes wait to be written already.
	ErrQueueFull = errors.New("write queue is full")
	// ErrInvalid means that the request cannot be expressed on the wire.
	ErrInvalid = errors.New("invalid request")
	// ErrFrame means that the peer sent bytes that are not a frame.
	ErrFrame = errors.New("malformed frame")
)

// CallError is the error of a call that got no answer. errors.Is finds both
// its Kind ([ErrNotSent] or [ErrReplyMissing]) and its Cause.
type CallError struct {
	Op    string // the request, in words
	Addr  string // host:port of the peer; empty when there is none
	Kind  error
	Cause error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s to %s: %v: %v", e.Op, e.Addr, e.Kind, e.Cause)
}

// Unwrap returns the kind and the cause.
func (e *CallError) Unwrap() []error { return []error{e.Kind, e.Cause} }

func notSent(op, addr string, cause error) error {
	return &CallError{Op: op, Addr: addr, Kind: ErrNotSent, Cause: cause}
}

// BrokerError is an answer with a code other than success: the broker, or a
// name server, has read the request and refused it.
type BrokerError struct {
	Op     string
	Addr   string
	Code   int // one of the Code constants
	Remark string
}

func (e *BrokerError) Error() string {
	return fmt.Sprintf("%s to %s: code %d: %s", e.Op, e.Addr, e.Code, e.Remark)
}

// Response codes (ResponseCode and RemotingSysResponseCode of RocketMQ).
const (
	CodeSuccess             = 0
	CodeSystemError         = 1
	CodeSystemBusy          = 2 // not executed, because of flow control or a long wait in the broker's queue of requests
	CodeNotSupported        = 3
	CodeFlushDiskTimeout    = 10
	CodeSlaveNotAvailable   = 11
	CodeFlushSlaveTimeout   = 12
	CodeMessageIllegal      = 13 // body or properties too long
	CodeServiceUnavailable  = 14 // disk full, store shut down, broker is a slave
	CodeNoPermission        = 16
	CodeTopicNotExist       = 17
	CodePullNotFound        = 19
	CodePullRetry           = 20
	CodePullOffsetMoved     = 21
	CodeQueryNotFound       = 22
	CodeNoSubscriptionGroup = 26 // on brokers that do not create groups at their first use
	CodeInvalidParameter    = 29 // for example, a queue id that the topic does not have
	CodeFlowControl         = 215
	CodeNotLeader           = 501
	CodeIllegalOperation    = 604 // an end that came after the message's own check immunity time
	CodeGoAway              = 1500
)

// IsCode reports whether err is an answer with that code.
func IsCode(err error, code int) bool {
	var answer *BrokerError
	return errors.As(err, &answer) && answer.Code == code
}
