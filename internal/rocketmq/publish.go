package rocketmq

import (
	"context"
	"strconv"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Publish stores messages without a transaction, all of one topic and queue, at least one; see messages.Broker.
func (c *Client) Publish(ctx context.Context, list []txn.Message) (txn.SendStatus, error) {
	sent := time.Now()
	result, err := c.publish(ctx, list)
	if err = c.judge(&list[0], sent, result.Status, err); err != nil {
		return "", err
	}
	return txn.SendStatus(result.Status.String()), nil
}

func (c *Client) publish(ctx context.Context, list []txn.Message) (remoting.SendResult, error) {
	broker := list[0].Queue.Broker
	if len(list) == 1 {
		return c.remote.Send(ctx, broker, publishRequest(&list[0]))
	}
	return c.remote.SendBatch(ctx, broker, batchRequest(list))
}

// PublishOneWay hands the messages to the connection, and never learns whether they are stored; see messages.Broker.
func (c *Client) PublishOneWay(list []txn.Message) error {
	broker := list[0].Queue.Broker
	if len(list) == 1 {
		return oneWayError(&list[0], c.remote.SendOneWay(broker, publishRequest(&list[0])))
	}
	return oneWayError(&list[0], c.remote.SendBatchOneWay(broker, batchRequest(list)))
}

// Size is how many bytes of the broker's limit a message takes, in a batch or by itself; see messages.Broker. A message of a
// transaction has the notes of a commit, too.
func (c *Client) Size(m *txn.Message) int {
	b := batchMessage(m)
	if m.TxID != "" {
		b.Properties = append(b.Properties, notesOfCommit(c.remote.Group(), m)...)
	}
	return b.Size()
}

func publishRequest(m *txn.Message) *remoting.SendRequest {
	request := sendRequest(m)
	request.Properties = append(request.Properties, delayProperties(m)...)
	return request
}

// delayProperties tell the broker when to put the message into its queue, which stays the same.
func delayProperties(m *txn.Message) remoting.Properties {
	switch {
	case m.DelayLevel > 0:
		return remoting.Properties{{Name: remoting.PropDelay, Value: strconv.Itoa(m.DelayLevel)}}
	case !m.DeliverAt.IsZero():
		return remoting.Properties{{Name: remoting.PropDeliverAt, Value: strconv.FormatInt(deliverMs(m.DeliverAt), 10)}}
	default:
		return nil
	}
}

// deliverMs rounds up, because a message must not be visible before its time.
func deliverMs(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

func batchMessage(m *txn.Message) remoting.BatchMessage {
	return remoting.BatchMessage{UniqKey: m.UniqKey, Properties: properties(m), Body: m.Body}
}

func batchRequest(list []txn.Message) *remoting.BatchRequest {
	b := &remoting.BatchRequest{
		Topic: list[0].Topic, QueueID: list[0].Queue.ID, Messages: make([]remoting.BatchMessage, len(list)),
	}
	for i := range list {
		b.Messages[i] = batchMessage(&list[i])
	}
	return b
}
