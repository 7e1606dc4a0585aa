package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Publish stores messages without a transaction, all of one topic and queue, at least one; see messages.Broker.
func (c *Client) Publish(ctx context.Context, list []txn.Message) (txn.SendStatus, error) {
	if err := c.checkTimer(&list[0]); err != nil {
		return "", err
	}
	result, err := c.publish(ctx, list)
	if err != nil {
		return "", publishError(list[0].Topic, err)
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

// PublishOneWay hands the messages to the connection, and learns nothing of what becomes of them; see messages.Broker.
func (c *Client) PublishOneWay(list []txn.Message) error {
	if err := c.checkTimer(&list[0]); err != nil {
		return err
	}
	broker := list[0].Queue.Broker
	if len(list) == 1 {
		return callError(c.remote.SendOneWay(broker, publishRequest(&list[0])))
	}
	return callError(c.remote.SendBatchOneWay(broker, batchRequest(list)))
}

// BatchSize is what the message takes in a batch, in bytes; see messages.Broker.
func (c *Client) BatchSize(m *txn.Message) int {
	b := batchMessage(m)
	return b.Size()
}

// checkTimer refuses a time of delivery that the broker would take no notice of. Where its version is not known yet it
// cannot be reached either.
func (c *Client) checkTimer(m *txn.Message) error {
	version := c.remote.BrokerVersion(m.Queue.Broker)
	if m.DeliverAt.IsZero() || version == 0 || version >= remoting.VersionTimer {
		return nil
	}
	return txn.Invalid(txn.FieldError{
		Pointer: pointerDeliverAt, Message: "the broker's RocketMQ is older than 5.0 and cannot deliver at a given time: use delay_level",
	})
}

func publishRequest(m *txn.Message) *remoting.SendRequest {
	request := sendRequest(m)
	request.Properties = append(request.Properties, delayProperties(m)...)
	return request
}

// delayProperties tell the broker when to put the message into its queue. It keeps the queue meanwhile.
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

// deliverMs rounds up: a message is not to be seen before its time.
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

const pointerDeliverAt = "/deliver_at"

// The broker's words for what has no code of its own (SendMessageProcessor, MessageExtEncoder).
const (
	remarkTimerRange = "timer message illegal"
	remarkTimerOff   = "accurate timer message is not enabled"
	remarkTimerBusy  = "timer message is under flow control"
	remarkBatchSize  = "message body size exceeded"
)

// notStoredRemarks come with a system error too, before anything is stored.
var notStoredRemarks = []string{"in-sync replicas not enough", "broker unable to service", "create mapped file failed"}

// publishError says what is known of messages that were not accepted, where the broker tells more than by its codes.
func publishError(topic string, err error) error {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	if !ok {
		return sendError(topic, err)
	}
	says := func(remark string) bool { return strings.Contains(answer.Remark, remark) }
	switch {
	case says(remarkTimerRange):
		return txn.Invalid(txn.FieldError{Pointer: pointerDeliverAt, Message: "is further ahead than the broker accepts (timerMaxDelaySec)"})
	case says(remarkTimerOff):
		return txn.Invalid(txn.FieldError{Pointer: pointerDeliverAt, Message: "the broker does not deliver at a given time: its timerWheelEnable is off"})
	case says(remarkTimerBusy):
		return fmt.Errorf("%w: %w: %w", txn.ErrNotSent, txn.ErrBusy, err)
	case says(remarkBatchSize):
		return &txn.Error{Code: txn.CodePayloadTooLarge, Detail: "the broker refused the batch: it is larger than it accepts (maxMessageSize)", Cause: err}
	case slices.ContainsFunc(notStoredRemarks, says):
		return fmt.Errorf("%w: %w", txn.ErrNotSent, err)
	default:
		return sendError(topic, err)
	}
}
