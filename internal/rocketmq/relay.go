package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// SendBatch is Send for several messages of one topic and queue; see delivery.Broker.
func (c *Client) SendBatch(ctx context.Context, messages []txn.Message, writeBefore time.Time) error {
	first := &messages[0]
	request := &remoting.BatchRequest{
		Topic: first.Topic, QueueID: first.Queue.ID, Messages: make([]remoting.BatchMessage, len(messages)), WriteBefore: writeBefore,
	}
	for i := range messages {
		request.Messages[i] = c.batchMessage(&messages[i])
	}
	result, err := c.remote.SendBatch(ctx, first.Queue.Broker, request)
	if err != nil {
		return relayError(first.Topic, err)
	}
	if result.Status != remoting.SendOK {
		return fmt.Errorf("messages stored with %s only: %w", result.Status, txn.ErrReplyMissing)
	}
	return nil
}

// relayError is sendError for a message that was not made a moment ago: what it cannot be sent for now keeps it from being
// sent for ever.
func relayError(topic string, err error) error {
	if errors.Is(err, remoting.ErrInvalid) {
		return &txn.Error{Code: txn.CodeInvalidRequest, Detail: "the message has a form that RocketMQ does not take", Cause: err}
	}
	return sendError(topic, err)
}

// Size is what the message takes of a batch, in bytes.
func (c *Client) Size(m txn.Message) int {
	message := c.batchMessage(&m)
	return message.Size()
}

func (c *Client) batchMessage(m *txn.Message) remoting.BatchMessage {
	return remoting.BatchMessage{
		UniqKey: m.UniqKey, Properties: append(properties(m), notesOfCommit(c.remote.Group(), m)...), Body: m.Body,
	}
}
