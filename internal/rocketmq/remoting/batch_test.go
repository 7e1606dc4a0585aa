package remoting

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// batchOf makes a batch of so many messages, each with all that a message has.
func batchOf(topic string, queue, n int) *BatchRequest {
	b := &BatchRequest{Topic: topic, QueueID: queue}
	for i := range n {
		b.Messages = append(b.Messages, BatchMessage{
			UniqKey: UniqKey(), Body: fmt.Appendf(nil, "body %d – 世\x00\xff", i), Flag: int32(i),
			Properties: Properties{{PropTags, "t"}, {PropKeys, fmt.Sprint("key-", i)}, {"größe", `a "b" \ c`}},
		})
	}
	return b
}

func assertBatch(t *testing.T, want []BatchMessage, got []Message) {
	t.Helper()
	for i, w := range want {
		g := got[i]
		if !bytes.Equal(g.Body, w.Body) || g.Flag != w.Flag || !slices.Equal(g.Properties, w.properties()) {
			t.Errorf("message %d: got %q, flag %d, %q; want %q, %d, %q", i, g.Body, g.Flag, g.Properties, w.Body, w.Flag, w.properties())
		}
	}
}

func TestBatch(t *testing.T) {
	codecs(t, func(t *testing.T, c *Client) {
		topic, broker := newTopic(t, c, 4), anyBroker(t, c)
		if _, err := c.Send(t.Context(), broker, &SendRequest{Topic: topic, QueueID: 2, Body: []byte("before")}); err != nil {
			t.Fatal(err)
		}
		b := batchOf(topic, 2, 5)
		sent, err := c.SendBatch(t.Context(), broker, b)
		if err != nil {
			t.Fatal(err)
		}
		got := assertQueue(t, c, topic, 2, 6)[1:]
		assertBatch(t, b.Messages, got)
		if sent.Status != SendOK || sent.QueueID != 2 || sent.QueueOffset != 1 || sent.CommitLogOffset != got[0].CommitLogOffset || sent.OffsetMsgID != got[0].OffsetMsgID() {
			t.Errorf("got %+v, want the first of the messages at offset 1", sent)
		}
	})
}

// One-way sends arrive and are not answered. The test waits for each, because the broker's threads take them in any
// order.
func TestOneWaySends(t *testing.T) {
	codecs(t, func(t *testing.T, c *Client) {
		topic, broker, reader := newTopic(t, c, 2), anyBroker(t, c), newClient(t, nil)
		read := c.Stats().FramesRead
		const alone = 10
		for i := range alone {
			if err := c.SendOneWay(broker, &SendRequest{Topic: topic, QueueID: 1, Body: []byte("alone"), Flag: int32(i)}); err != nil {
				t.Fatal(err)
			}
			if got := assertQueue(t, reader, topic, 1, i+1)[i]; string(got.Body) != "alone" || got.Flag != int32(i) || got.UniqKey() == "" {
				t.Errorf("got %+v", got)
			}
		}
		b := batchOf(topic, 1, 3)
		if err := c.SendBatchOneWay(broker, b); err != nil {
			t.Fatal(err)
		}
		assertBatch(t, b.Messages, assertQueue(t, reader, topic, 1, alone+3)[alone:])
		if answers := c.Stats().FramesRead - read; answers > alone/2 { // heartbeats and routes are
			t.Errorf("%d frames came back: one-way sends were answered", answers)
		}
	})
}

// The broker stores a batch whole or not at all.
func TestBatchIsRefusedWhole(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	large := batchOf(topic, 0, 3)
	for i := range large.Messages {
		large.Messages[i].Body = make([]byte, 2<<20)
	}
	if _, err := c.SendBatch(t.Context(), broker, large); !IsCode(err, CodeSystemError) {
		t.Errorf("over the broker's limit: got %v, want code %d", err, CodeSystemError)
	}
	if _, err := c.SendBatch(t.Context(), broker, batchOf(topic, 9, 2)); !IsCode(err, CodeInvalidParameter) {
		t.Errorf("unknown queue: got %v, want code %d", err, CodeInvalidParameter)
	}
	if _, err := c.SendBatch(t.Context(), broker, batchOf("nowhere-"+topic, 0, 2)); !IsCode(err, CodeTopicNotExist) {
		t.Errorf("unknown topic: got %v, want code %d", err, CodeTopicNotExist)
	}
	assertQueue(t, c, topic, 0, 0)
}

// A batch may be as large as the broker's limit, and Size computes its size.
func TestLargestBatch(t *testing.T) {
	const limit = 4 << 20
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	b := batchOf(topic, 0, 2)
	b.Messages[0].Body = nil // whose Size would count
	b.Messages[0].Body = make([]byte, limit-b.Messages[0].Size()-b.Messages[1].Size())
	if _, err := c.SendBatch(t.Context(), broker, b); err != nil {
		t.Fatal(err)
	}
	b.Messages[0].Body = append(b.Messages[0].Body, 'x')
	if _, err := c.SendBatch(t.Context(), broker, b); err == nil {
		t.Error("one byte more: got no error")
	}
	await.Success(t, 30*time.Second, func() error {
		end, err := c.MaxOffset(t.Context(), broker, topic, 0)
		if err == nil && end != 2 {
			err = fmt.Errorf("the queue ends at %d, want 2", end)
		}
		return err
	})
}

func TestInvalidBatchIsNotSent(t *testing.T) {
	c := newClient(t, nil)
	broker := anyBroker(t, c)
	with := func(change func(m *BatchMessage)) *BatchRequest {
		b := batchOf("t", 0, 3)
		change(&b.Messages[1])
		return b
	}
	for name, b := range map[string]*BatchRequest{
		"no message":      batchOf("t", 0, 0),
		"too many":        {Topic: "t", Messages: make([]BatchMessage, MaxBatch+1)},
		"no topic":        batchOf("", 0, 1),
		"negative queue":  batchOf("t", -1, 1),
		"no body":         with(func(m *BatchMessage) { m.Body = nil }),
		"no id":           with(func(m *BatchMessage) { m.UniqKey = "" }),
		"empty property":  with(func(m *BatchMessage) { m.Properties = Properties{{"a", ""}} }),
		"separator":       with(func(m *BatchMessage) { m.Properties = Properties{{"a", "b\x02c\x01d"}} }),
		"long properties": with(func(m *BatchMessage) { m.Properties = Properties{{"a", string(make([]byte, maxProperties-40))}} }),
	} {
		if _, err := c.SendBatch(t.Context(), broker, b); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrNotSent and ErrInvalid", name, err)
		}
		if err := c.SendBatchOneWay(broker, b); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s, one-way: got %v, want ErrNotSent and ErrInvalid", name, err)
		}
	}
	if err := c.SendOneWay(broker, &SendRequest{Topic: "t"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("one-way without a body: got %v, want ErrInvalid", err)
	}
	if err := c.SendOneWay("broker-x", &SendRequest{Topic: "t", Body: []byte("x")}); !errors.Is(err, ErrNotSent) {
		t.Errorf("one-way to an unknown broker: got %v, want ErrNotSent", err)
	}
}

func TestBrokerVersion(t *testing.T) {
	c := newClient(t, nil)
	broker := anyBroker(t, c)
	if got := c.BrokerVersion(broker); got < VersionTimer {
		t.Errorf("got version %d, want that of a RocketMQ 5: %d or more", got, VersionTimer)
	}
	if got := c.BrokerVersion("broker-x"); got != 0 {
		t.Errorf("unknown broker: got version %d, want 0", got)
	}
}
