package messages

import (
	"github.com/txsvc/txsvc/internal/txn"
)

// What a client is advised after another answer than SEND_OK.
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

// outcome is the label of the outcome of messages.
func outcome(status txn.SendStatus, err error) string {
	switch {
	case err == nil:
		return string(status)
	case txn.IsMaybeSent(err):
		return statusUnconfirmed
	case txn.IsUnsent(err):
		return statusNotSent
	default:
		return statusRefused
	}
}

// coded gives the error of messages the code that clients see.
func coded(err error, list []txn.Message) error {
	if txn.IsMaybeSent(err) {
		return &txn.Error{
			Code: txn.CodeUnconfirmed, Cause: err, MessageIDs: ids(list),
			Detail: "it is not known whether this is stored in queue " + list[0].Queue.String() + ": " + txn.Why(err) +
				". It may be stored, now or later; sending it again may make a second one",
		}
	}
	return txn.Undone(txn.Coded(err, "the broker did not take this for queue "+list[0].Queue.String()), nothingSent)
}

// nothingSent is what clients can rely on after an error without MessageIDs.
const nothingSent = "nothing was sent"

func overloaded(detail string) error {
	return &txn.Error{Code: txn.CodeOverloaded, Detail: detail, RetryAfter: txn.RetrySoon}
}
