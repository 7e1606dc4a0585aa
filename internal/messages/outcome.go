package messages

import (
	"errors"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// What a caller is told to do beside SEND_OK.
const (
	adviceAsync  = "It waits in this process's memory and is sent in the background: it is lost if the process dies before. Metrics and log tell the outcome."
	adviceOneWay = "It was handed to the connection, and nobody learns whether it was stored. Messages that are sent one-way may overtake each other."
	adviceStored = " It is stored and visible to consumers: sending it again makes a second one, so do that only if a second one is harmless and a lost one is not."
)

var advices = map[txn.SendStatus]string{
	txn.SendOK:            "",
	txn.FlushDiskTimeout:  "The broker did not flush it to disk in time: a crash of the broker's host may lose it." + adviceStored,
	txn.FlushSlaveTimeout: "No slave confirmed it in time: the loss of the master may lose it." + adviceStored,
	txn.SlaveNotAvailable: "The broker has no slave that could take it: the loss of the master may lose it." + adviceStored,
}

func advice(status txn.SendStatus) string { return advices[status] }

// outcome is the label of what became of messages.
func outcome(status txn.SendStatus, err error) string {
	switch {
	case err == nil:
		return string(status)
	case errors.Is(err, txn.ErrReplyMissing):
		return statusUnconfirmed
	case retriable(err):
		return statusNotSent
	default:
		return statusRefused
	}
}

// retriable tells whether messages were certainly not sent, and may be taken later.
func retriable(err error) bool {
	return errors.Is(err, txn.ErrNotSent) || txn.CodeOf(err) == txn.CodeBrokerUnavailable
}

// sendError is what a client is told.
func sendError(err error, list []txn.Message) error {
	switch {
	case errors.Is(err, txn.ErrReplyMissing):
		return &txn.Error{
			Code: txn.CodeUnconfirmed, Cause: err, MessageIDs: ids(list),
			Detail: "it is not known whether this is stored in queue " + list[0].Queue.String() + ": " + txn.Why(err) +
				". It may be stored, now or later; sending it again may make a second one",
		}
	case errors.Is(err, txn.ErrNotSent):
		return txn.BrokerUnavailable(err, "the broker did not take this for queue %s: %s; nothing was sent", list[0].Queue, txn.Why(err))
	default:
		return nothingSent(err)
	}
}

// nothingSent adds to what an adapter says of the broker what it cannot know.
func nothingSent(err error) error {
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code != txn.CodeBrokerUnavailable {
		return err
	}
	told := *e
	told.Detail += "; nothing was sent"
	return &told
}

func overloaded(detail string) error {
	return &txn.Error{Code: txn.CodeOverloaded, Detail: detail, RetryAfter: time.Second}
}
