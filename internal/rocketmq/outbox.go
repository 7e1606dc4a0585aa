package rocketmq

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/failpoint"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// SendBatch is Send for several messages of one topic and queue; see delivery.Broker.
func (c *Client) SendBatch(ctx context.Context, messages []txn.Message, writeBefore time.Time) error {
	first := &messages[0]
	request := batchRequest(messages)
	request.WriteBefore = writeBefore
	for i := range messages {
		request.Messages[i].Properties = append(request.Messages[i].Properties, notesOfCommit(c.remote.Group(), &messages[i])...)
	}
	return c.sendOnce(first, func() (remoting.SendResult, error) { return c.remote.SendBatch(ctx, first.Queue.Broker, request) })
}

// Send sends the message as a normal one, which looks as if it came from a half message; see delivery.Broker.
func (c *Client) Send(ctx context.Context, m txn.Message, writeBefore time.Time) error {
	request := sendRequest(&m)
	request.Properties = append(request.Properties, notesOfCommit(c.remote.Group(), &m)...)
	request.WriteBefore = writeBefore
	return c.sendOnce(&m, func() (remoting.SendResult, error) { return c.remote.Send(ctx, m.Queue.Broker, request) })
}

// sendOnce sends messages of transactions, and returns what is known of them.
func (c *Client) sendOnce(m *txn.Message, send func() (remoting.SendResult, error)) error {
	if failpoint.Armed("relay-sent") {
		c.sendAndDie("relay-sent", func() { _, _ = send() })
	}
	sent := time.Now()
	result, err := send()
	if err = c.judge(m, sent, result.Status, err); err != nil {
		return err
	}
	if result.Status != remoting.SendOK {
		return storedWith(result.Status, txn.MaybeSent)
	}
	failpoint.Hit("relay-answered")
	return nil
}
