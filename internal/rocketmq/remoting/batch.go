package remoting

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// MaxBatch is the largest number of messages that a broker can store as one batch. The broker counts them in a signed
// 16-bit number (CommitLog.asyncPutMessages). It does not refuse more, but more spoil the queue's offsets.
const MaxBatch = 1<<15 - 1

// batchMessageFixed is the size of a message in a batch without its body and its properties: size 4, magic 4, checksum
// 4, flag 4, body length 4, properties length 2.
const batchMessageFixed = 22

// BatchMessage is one message of a batch. It cannot be delayed or be a half message, because brokers store a batch's
// messages at once and as they are.
type BatchMessage struct {
	UniqKey    string     // message id, see the function UniqKey; required
	Properties Properties // the user's and KEYS, TAGS, …; the client adds its own
	Body       []byte
	Flag       int32 // the application's own
}

// BatchRequest has messages for one queue, in their order.
type BatchRequest struct {
	Topic       string
	QueueID     int
	Messages    []BatchMessage
	BornAt      time.Time // now when zero
	WriteBefore time.Time // see the package comment; no limit when zero
}

// SendBatch stores the messages on a broker, one after the other in the queue: all of them or none
// (SEND_BATCH_MESSAGE). Errors are like those of Send. The result describes the first message. The broker's limit of a
// message's size (maxMessageSize) applies to the sum of their Size.
func (c *Client) SendBatch(ctx context.Context, broker string, b *BatchRequest) (SendResult, error) {
	req, err := c.batchRequest(broker, b)
	if err != nil {
		return SendResult{}, err
	}
	return c.send(ctx, broker, b.Topic, b.Messages[0].UniqKey, req, b.WriteBefore)
}

// SendBatchOneWay is to SendBatch what SendOneWay is to Send.
func (c *Client) SendBatchOneWay(broker string, b *BatchRequest) error {
	req, err := c.batchRequest(broker, b)
	if err != nil {
		return err
	}
	return c.sendOneWay(broker, req, b.WriteBefore)
}

func (c *Client) batchRequest(broker string, b *BatchRequest) (*request, error) {
	const op = "send batch"
	if err := b.check(); err != nil {
		return nil, notSent(op, broker, err)
	}
	h := &sendHeader{
		group: c.cfg.Group, broker: broker, topic: b.Topic, queue: b.QueueID, batch: true, born: bornAt(b.BornAt),
		properties: Properties{{"WAIT", "true"}}, // of the batch: the broker answers when it has flushed as configured
	}
	return &request{op: op, code: codeSendBatch, header: h, body: b.encode()}, nil
}

// check refuses batches that the wire cannot carry, and those that a broker would take and spoil.
func (b *BatchRequest) check() error {
	if len(b.Messages) == 0 || len(b.Messages) > MaxBatch {
		return fmt.Errorf("%w: batch of %d messages", ErrInvalid, len(b.Messages))
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		single := SendRequest{Topic: b.Topic, QueueID: b.QueueID, Body: m.Body, Properties: m.properties()}
		if err := single.check(); err != nil {
			return fmt.Errorf("message %d of the batch: %w", i, err)
		}
		if m.UniqKey == "" {
			return fmt.Errorf("%w: message %d of the batch has no id", ErrInvalid, i)
		}
	}
	return nil
}

func (m *BatchMessage) properties() Properties {
	return append(m.Properties[:len(m.Properties):len(m.Properties)], Property{PropUniqKey, m.UniqKey})
}

// Size returns the bytes that the message takes in a batch.
func (m *BatchMessage) Size() int {
	size := batchMessageFixed + len(m.Body)
	for _, p := range m.properties() {
		size += len(p.Name) + len(p.Value) + 2
	}
	return size
}

// encode writes the messages in the form of MessageDecoder.encodeMessages. The
// broker fills in magic number and checksum.
func (b *BatchRequest) encode() []byte {
	size := 0
	for i := range b.Messages {
		size += b.Messages[i].Size()
	}
	w := fieldWriter{codec: CodecBinary, buf: make([]byte, 0, size)}
	for i := range b.Messages {
		m := &b.Messages[i]
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(m.Size()))
		w.buf = append(w.buf, 0, 0, 0, 0, 0, 0, 0, 0)
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(m.Flag))
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(m.Body)))
		w.buf = append(w.buf, m.Body...)
		text := m.properties().Encode()
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(text)))
		w.buf = append(w.buf, text...)
	}
	return w.buf
}
