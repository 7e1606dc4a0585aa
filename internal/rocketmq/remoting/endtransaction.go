package remoting

import (
	"context"
	"time"
)

// Decision is how a half message ends.
type Decision int

// The two decisions (MessageSysFlag of RocketMQ).
const (
	Commit   Decision = 8
	Rollback Decision = 12
)

// String returns the decision in words.
func (d Decision) String() string {
	if d == Commit {
		return "commit"
	}
	return "rollback"
}

// EndRequest names a half message, or the copy of it that a check-back was about, and the decision.
type EndRequest struct {
	Topic           string // the real one; needed for access control
	UniqKey         string
	TransactionID   string // UniqKey when empty
	CommitLogOffset int64
	HalfQueueOffset int64
	Decision        Decision
	FromCheckback   bool
	WriteBefore     time.Time // see the package comment; no limit when zero
}

// EndTransaction ends a half message and waits for the answer. nil means that the broker has executed it: a committed
// message is in its queue.
//
// The broker does not remember decisions: every further commit, also one after a rollback, makes one more visible
// message. A BrokerError means that nothing was executed: CodeSystemBusy when the request waited too long in the
// broker's queue of requests, CodeSystemError when the half message is not at that offset or belongs to another group,
// CodeIllegalOperation when the message's own check immunity time has passed. After ErrReplyMissing the broker may
// execute it now, later, or never.
func (c *Client) EndTransaction(ctx context.Context, broker string, e *EndRequest) error {
	req := &request{op: e.Decision.String(), code: codeEndTransaction, header: &endHeader{c.cfg.Group, broker, e}}
	_, err := c.callBroker(ctx, broker, req, e.WriteBefore)
	return err
}

// endHeader is EndTransactionRequestHeader of RocketMQ.
type endHeader struct {
	group, broker string
	e             *EndRequest
}

func (h *endHeader) appendFields(w *fieldWriter) {
	transactionID := h.e.TransactionID
	if transactionID == "" {
		transactionID = h.e.UniqKey
	}
	w.str("bname", h.broker)
	w.num("commitLogOffset", h.e.CommitLogOffset)
	w.num("commitOrRollback", int64(h.e.Decision))
	w.flag("fromTransactionCheck", h.e.FromCheckback)
	w.str("msgId", h.e.UniqKey)
	w.str("producerGroup", h.group)
	w.str("topic", h.e.Topic)
	w.num("tranStateTableOffset", h.e.HalfQueueOffset)
	w.str("transactionId", transactionID)
}
