package remoting

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// SendStatus says how safely a message is stored.
type SendStatus int

// The answers with which a broker accepts a message. Only with SendOK the message is as safe as the broker's
// configuration promises; with the others it may be lost with the broker.
const (
	SendOK             SendStatus = CodeSuccess
	FlushDiskTimeout   SendStatus = CodeFlushDiskTimeout
	SlaveNotAvailable  SendStatus = CodeSlaveNotAvailable
	FlushSlaveTimeout  SendStatus = CodeFlushSlaveTimeout
	defaultTopic                  = "TBW102" // required on the wire, and unused because sending creates no topics
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
	QueueOffset     int64 // for a half message, in the half queue
	CommitLogOffset int64
	StoreHost       netip.AddrPort
}

// Send stores a message on a broker (SEND_MESSAGE_V2). The error is a CallError, or a BrokerError when the broker
// refused the message; then it is not stored.
func (c *Client) Send(ctx context.Context, broker string, m *SendRequest) (SendResult, error) {
	req, uniqKey, err := c.sendRequest(broker, m)
	if err != nil {
		return SendResult{}, err
	}
	return c.send(ctx, broker, m.Topic, uniqKey, req, m.WriteBefore)
}

// SendOneWay hands a message to the connection and asks for no answer, so nobody learns whether the broker stores it.
// The error is always an ErrNotSent: there is no connection, or too many bytes wait for it. WriteBefore counts.
func (c *Client) SendOneWay(broker string, m *SendRequest) error {
	req, _, err := c.sendRequest(broker, m)
	if err != nil {
		return err
	}
	return c.sendOneWay(broker, req, m.WriteBefore)
}

// sendRequest makes the frame of a message, and returns its UNIQ_KEY as well.
func (c *Client) sendRequest(broker string, m *SendRequest) (*request, string, error) {
	h := &sendHeader{
		group: c.cfg.Group, broker: broker, topic: m.Topic, queue: m.QueueID, flag: m.Flag, properties: m.Properties,
		uniqKey: m.UniqKey, half: m.Half, born: bornAt(m.BornAt),
	}
	if h.uniqKey == "" {
		h.uniqKey = UniqKey()
	}
	req := &request{op: "send", code: codeSendV2, header: h, body: m.Body}
	if err := m.check(); err != nil {
		return nil, "", notSent(req.op, broker, err)
	}
	return req, h.uniqKey, nil
}

func bornAt(t time.Time) int64 {
	if t.IsZero() {
		t = time.Now()
	}
	return t.UnixMilli()
}

func (c *Client) send(ctx context.Context, broker, topic, uniqKey string, req *request, writeBefore time.Time) (SendResult, error) {
	reply, err := c.callBroker(ctx, broker, req, writeBefore)
	if err != nil && !accepted(&reply) {
		c.distrust(topic, err)
		return SendResult{}, err
	}
	return decodeSendResult(req.op, &reply, uniqKey)
}

func (c *Client) sendOneWay(broker string, req *request, writeBefore time.Time) error {
	l := (*c.links.Load())[broker]
	if l == nil {
		c.refreshSoon()
		return notSent(req.op, broker, ErrUnknownBroker)
	}
	conn, err := l.conn()
	if err != nil {
		return notSent(req.op, l.addr, err)
	}
	return conn.oneWay(req, writeBefore)
}

// check refuses messages that the wire cannot carry, and empty bodies, because the broker fails on them without a
// proper answer.
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
	result.OffsetMsgID, _, _ = strings.Cut(result.OffsetMsgID, ",") // of a batch the first message's
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
	group, broker, topic string
	uniqKey              string // empty for a batch: its messages have theirs
	queue                int
	flag                 int32
	properties           Properties
	half, batch          bool
	born                 int64
}

func (h *sendHeader) appendFields(w *fieldWriter) {
	own := [...]Property{{PropUniqKey, h.uniqKey}, {PropPrepared, "true"}, {PropGroup, h.group}}
	added, sysFlag := own[:1], int64(0)
	switch {
	case h.half:
		added, sysFlag = own[:], sysPrepared
	case h.batch:
		added = nil
	}
	w.str("a", h.group)
	w.str("b", h.topic)
	w.str("c", defaultTopic)
	w.num("d", defaultTopicQueues)
	w.num("e", int64(h.queue))
	w.num("f", sysFlag)
	w.num("g", h.born)
	w.num("h", int64(h.flag))
	w.props("i", h.properties, added)
	w.num("j", 0)
	w.flag("k", false)
	w.num("l", 0)
	w.flag("m", h.batch)
	w.str("n", h.broker)
}
