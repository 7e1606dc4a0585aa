package remoting

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// SendStatus says how safely a message is stored.
type SendStatus int

// The answers with which a broker accepts a message. Only SendOK promises what
// the broker's configuration promises; the others may be lost with the broker.
const (
	SendOK             SendStatus = CodeSuccess
	FlushDiskTimeout   SendStatus = CodeFlushDiskTimeout
	SlaveNotAvailable  SendStatus = CodeSlaveNotAvailable
	FlushSlaveTimeout  SendStatus = CodeFlushSlaveTimeout
	defaultTopic                  = "TBW102" // required on the wire, unused by us: topics are not created by sending
	defaultTopicQueues            = 4
)

// String returns RocketMQ's name of the status.
func (s SendStatus) String() string {
	switch s {
	case SendOK:
		return "SEND_OK"
	case FlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case SlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	case FlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	}
	return strconv.Itoa(int(s))
}

// SendRequest is one message for one queue.
type SendRequest struct {
	Topic       string
	QueueID     int
	UniqKey     string     // message id, see the function UniqKey; generated when empty
	Properties  Properties // the user's and KEYS, TAGS, …; the client adds its own
	Body        []byte
	Half        bool      // as a half message
	Flag        int32     // the application's own
	BornAt      time.Time // now when zero
	WriteBefore time.Time // see the package comment; no limit when zero
}

// SendResult is how a broker stored a message.
type SendResult struct {
	Status          SendStatus
	UniqKey         string
	OffsetMsgID     string // the broker's own id, of store host and commit-log offset
	TransactionID   string // as the broker gives it; the UniqKey
	QueueID         int
	QueueOffset     int64 // of a half message: in the half queue
	CommitLogOffset int64
	StoreHost       netip.AddrPort
}

// Send stores a message on a broker (SEND_MESSAGE_V2). Errors are a CallError, or
// a BrokerError when the broker refused; then it is not stored.
func (c *Client) Send(ctx context.Context, broker string, m *SendRequest) (SendResult, error) {
	h := &sendHeader{group: c.cfg.Group, broker: broker, m: m, uniqKey: m.UniqKey, born: m.BornAt.UnixMilli()}
	if h.uniqKey == "" {
		h.uniqKey = UniqKey()
	}
	if m.BornAt.IsZero() {
		h.born = time.Now().UnixMilli()
	}
	req := &request{op: "send", code: codeSendV2, header: h, body: m.Body}
	if err := m.check(); err != nil {
		return SendResult{}, notSent(req.op, broker, err)
	}
	reply, err := c.callBroker(ctx, broker, req, m.WriteBefore)
	if err != nil && !accepted(&reply) {
		c.distrust(m.Topic, err)
		return SendResult{}, err
	}
	return decodeSendResult(req.op, &reply, h.uniqKey)
}

// check refuses what the wire cannot carry. An empty body has no place in
// RocketMQ: the broker fails on it without a proper answer.
func (m *SendRequest) check() error {
	if m.Topic == "" || len(m.Topic) > 127 || len(m.Body) == 0 || m.QueueID < 0 {
		return fmt.Errorf("%w: topic of %d bytes, queue %d, body of %d bytes",
			ErrInvalid, len(m.Topic), m.QueueID, len(m.Body))
	}
	return m.Properties.check()
}

// accepted reports whether the reply says that the message is stored.
func accepted(reply *Frame) bool {
	switch SendStatus(reply.Code) {
	case SendOK, FlushDiskTimeout, SlaveNotAvailable, FlushSlaveTimeout:
		return len(reply.Fields) > 0
	}
	return false
}

func decodeSendResult(op string, reply *Frame, uniqKey string) (SendResult, error) {
	result := SendResult{
		Status: SendStatus(reply.Code), UniqKey: uniqKey,
		OffsetMsgID: reply.Get("msgId"), TransactionID: reply.Get("transactionId"),
	}
	var err error
	if result.StoreHost, result.CommitLogOffset, err = parseOffsetMsgID(result.OffsetMsgID); err != nil {
		return SendResult{}, &CallError{Op: op, Kind: ErrReplyMissing, Cause: err}
	}
	if result.QueueID, err = strconv.Atoi(reply.Get("queueId")); err != nil {
		return SendResult{}, &CallError{Op: op, Kind: ErrReplyMissing, Cause: fmt.Errorf("queue id: %w", err)}
	}
	if result.QueueOffset, err = strconv.ParseInt(reply.Get("queueOffset"), 10, 64); err != nil {
		return SendResult{}, &CallError{Op: op, Kind: ErrReplyMissing, Cause: fmt.Errorf("queue offset: %w", err)}
	}
	return result, nil
}

// sendHeader is SendMessageRequestHeaderV2 of RocketMQ.
type sendHeader struct {
	group, broker, uniqKey string
	born                   int64
	m                      *SendRequest
}

func (h *sendHeader) appendFields(w *fieldWriter) {
	own := [...]Property{{PropUniqKey, h.uniqKey}, {PropPrepared, "true"}, {PropGroup, h.group}}
	added, sysFlag := own[:1], int64(0)
	if h.m.Half {
		added, sysFlag = own[:], sysPrepared
	}
	w.str("a", h.group)
	w.str("b", h.m.Topic)
	w.str("c", defaultTopic)
	w.num("d", defaultTopicQueues)
	w.num("e", int64(h.m.QueueID))
	w.num("f", sysFlag)
	w.num("g", h.born)
	w.num("h", int64(h.m.Flag))
	w.props("i", h.m.Properties, added)
	w.num("j", 0)
	w.flag("k", false)
	w.num("l", 0)
	w.flag("m", false)
	w.str("n", h.broker)
}
