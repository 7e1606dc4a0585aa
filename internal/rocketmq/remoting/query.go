package remoting

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Field values that several requests share.
const (
	fieldTopic = "topic"
	fieldQueue = "queueId"
)

// QueryByUniqKey returns the messages of a topic with this message id that a broker's index has, stored between begin
// and end, at most 32. A zero time means no limit. An empty list is no error. The index has a message some milliseconds
// after it was stored.
func (c *Client) QueryByUniqKey(ctx context.Context, broker, topic, uniqKey string, begin, end time.Time) ([]Message, error) {
	req := &request{op: "query by message id", code: codeQuery, header: fieldList{
		{"_UNIQUE_KEY_QUERY", "true"},
		{"beginTimestamp", strconv.FormatInt(millis(begin, 0), 10)},
		{"endTimestamp", strconv.FormatInt(millis(end, math.MaxInt64), 10)},
		{"key", uniqKey}, {"maxNum", "32"}, {fieldTopic, topic},
	}}
	reply, err := c.callBroker(ctx, broker, req, time.Time{})
	if IsCode(err, CodeQueryNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	messages, err := DecodeMessages(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("query by message id: %w", err)
	}
	return withUniqKey(messages, topic, uniqKey), nil
}

// withUniqKey drops messages with other ids, because the index finds by hash.
func withUniqKey(messages []Message, topic, uniqKey string) []Message {
	kept := messages[:0]
	for i := range messages {
		if messages[i].Topic == topic && messages[i].UniqKey() == uniqKey {
			kept = append(kept, messages[i])
		}
	}
	return kept
}

func millis(t time.Time, zero int64) int64 {
	if t.IsZero() {
		return zero
	}
	return t.UnixMilli()
}

// View returns the message at a commit-log offset; a half message has the topic RMQ_SYS_TRANS_HALF_TOPIC. If there is
// none, the error is a BrokerError.
func (c *Client) View(ctx context.Context, broker, topic string, commitLogOffset int64) (Message, error) {
	req := &request{op: "view message", code: codeView, header: fieldList{
		{"offset", strconv.FormatInt(commitLogOffset, 10)}, {fieldTopic, topic},
	}}
	reply, err := c.callBroker(ctx, broker, req, time.Time{})
	if err != nil {
		return Message{}, err
	}
	m, _, err := decodeMessage(reply.Body)
	return m, err
}

// MaxOffset returns the offset that the queue's next message will get.
func (c *Client) MaxOffset(ctx context.Context, broker, topic string, queueID int) (int64, error) {
	return c.offset(ctx, broker, "max offset", codeMaxOffset, topic, queueID)
}

// MinOffset returns the offset of the queue's oldest message.
func (c *Client) MinOffset(ctx context.Context, broker, topic string, queueID int) (int64, error) {
	return c.offset(ctx, broker, "min offset", codeMinOffset, topic, queueID)
}

// SearchOffset returns the offset of the queue's first message that was stored at the time or later, by the broker's clock.
func (c *Client) SearchOffset(ctx context.Context, broker, topic string, queueID int, at time.Time) (int64, error) {
	return c.offset(ctx, broker, "offset by time", codeSearchOffset, topic, queueID, Field{"timestamp", strconv.FormatInt(at.UnixMilli(), 10)})
}

func (c *Client) offset(ctx context.Context, broker, op string, code int, topic string, queueID int, more ...Field) (int64, error) {
	req := &request{op: op, code: code, header: append(fieldList{{fieldQueue, strconv.Itoa(queueID)}, {fieldTopic, topic}}, more...)}
	reply, err := c.callBroker(ctx, broker, req, time.Time{})
	if err != nil {
		return 0, err
	}
	offset, err := strconv.ParseInt(reply.Get("offset"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	return offset, nil
}

// Ping sends a heartbeat and waits for the answer. The answer proves that the broker has read all earlier requests on
// this connection.
func (c *Client) Ping(ctx context.Context, broker string) error {
	_, err := c.callBroker(ctx, broker, c.heartbeat, time.Time{})
	return err
}

// PullResult has messages of a queue from an offset on.
type PullResult struct {
	Messages   []Message
	NextOffset int64 // to pull from next
	MinOffset  int64
	MaxOffset  int64
}

// Pull reads up to limit messages of a queue from offset on. It waits for the first one, up to wait rounded to
// milliseconds. It commits no offset for the group; the group's name only matters to the broker's access control.
func (c *Client) Pull(ctx context.Context, broker, group, topic string, queueID int, offset int64, limit int, wait time.Duration) (PullResult, error) {
	const subscribed, suspend = 1 << 2, 1 << 1
	flag := subscribed
	if wait > 0 {
		flag |= suspend
	}
	req := &request{op: "pull", code: codePull, header: fieldList{
		{"commitOffset", "0"}, {"consumerGroup", group}, {"expressionType", "TAG"},
		{"maxMsgNums", strconv.Itoa(limit)}, {fieldQueue, strconv.Itoa(queueID)},
		{"queueOffset", strconv.FormatInt(offset, 10)}, {"subVersion", "0"}, {"subscription", "*"},
		{"suspendTimeoutMillis", strconv.FormatInt(wait.Milliseconds(), 10)},
		{"sysFlag", strconv.Itoa(flag)}, {fieldTopic, topic},
	}}
	ctx, cancel := context.WithTimeout(ctx, wait+c.cfg.ReplyTimeout)
	defer cancel()
	reply, err := c.callBroker(ctx, broker, req, time.Time{})
	if err != nil && !IsCode(err, CodePullNotFound) && !IsCode(err, CodePullRetry) && !IsCode(err, CodePullOffsetMoved) {
		return PullResult{}, err
	}
	return decodePull(&reply)
}

func decodePull(reply *Frame) (result PullResult, err error) {
	for _, field := range []struct {
		name string
		into *int64
	}{
		{"nextBeginOffset", &result.NextOffset}, {"minOffset", &result.MinOffset}, {"maxOffset", &result.MaxOffset},
	} {
		if *field.into, err = strconv.ParseInt(reply.Get(field.name), 10, 64); err != nil {
			return PullResult{}, fmt.Errorf("pull: %s: %w", field.name, err)
		}
	}
	result.Messages, err = DecodeMessages(reply.Body)
	return result, err
}
