package broker

import (
	"errors"
	"fmt"

	"github.com/txsvc/txsvc/internal/txn"
)

func failure(outcome txn.SendOutcome, reason txn.SendReason, about string) error {
	return &txn.SendError{Outcome: outcome, Reason: reason, Cause: errors.New(about)}
}

func notSent(broker string) error {
	return failure(txn.Unsent, txn.ReasonUnreachable, broker+" cannot be reached")
}

func busy(broker string) error { return failure(txn.Unsent, txn.ReasonBusy, broker+" is busy") }

func replyMissing(broker string) error {
	return failure(txn.MaybeSent, txn.ReasonSilent, broker+" does not answer")
}

func unanswered(broker string) error {
	return failure(txn.Unsent, txn.ReasonUnanswered, broker+" does not answer")
}

func halfGone(h txn.Half) error {
	return failure(txn.Unsent, txn.ReasonHalfGone, fmt.Sprintf("%s has no half message at %d", h.Broker, h.QueueOffset))
}

func noQueue(q txn.Queue) error {
	return failure(txn.Unsent, txn.ReasonNoQueue, "nothing is taken for queue "+q.String())
}

// NotSent calls a request whose reply is missing one that was not sent, as a broken service would.
func NotSent(err error) error {
	if txn.IsMaybeSent(err) {
		return notSent("as if the broker")
	}
	return err
}
