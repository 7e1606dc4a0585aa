package remoting

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

func codecs(t *testing.T, test func(t *testing.T, c *Client)) {
	for name, codec := range map[string]Codec{"binary": CodecBinary, "json": CodecJSON} {
		t.Run(name, func(t *testing.T) {
			test(t, newClient(t, func(cfg *Config) { cfg.Codec = &codec }))
		})
	}
}

func half(topic string, queue int, body string) *SendRequest {
	return &SendRequest{
		Topic: topic, QueueID: queue, Half: true, Body: []byte(body),
		Properties: Properties{{PropKeys, "k1 \u00fcml\u00e4ut"}, {PropTags, "created"}, {"quote", `a "b" \ c`}},
	}
}

func TestHalfMessageIsVisibleAfterCommitOnly(t *testing.T) {
	codecs(t, func(t *testing.T, c *Client) {
		topic, broker := newTopic(t, c, 4), anyBroker(t, c)
		sent, err := c.Send(t.Context(), broker, half(topic, 3, "body"))
		if err != nil {
			t.Fatal(err)
		}
		if sent.Status != SendOK || sent.QueueID != 3 || sent.TransactionID != sent.UniqKey {
			t.Errorf("got %+v", sent)
		}
		assertQueue(t, c, topic, 3, 0)
		stored, err := c.View(t.Context(), broker, "RMQ_SYS_TRANS_HALF_TOPIC", sent.CommitLogOffset)
		if err != nil {
			t.Fatal(err)
		}
		if stored.UniqKey() != sent.UniqKey || stored.QueueOffset != sent.QueueOffset ||
			stored.OffsetMsgID() != sent.OffsetMsgID || stored.StoreHost != sent.StoreHost {
			t.Errorf("stored %+v, sent %+v", stored, sent)
		}
		end(t, c, broker, topic, sent, Commit)
		got := assertQueue(t, c, topic, 3, 1)[0]
		if string(got.Body) != "body" || got.UniqKey() != sent.UniqKey || got.PreparedOffset != sent.CommitLogOffset {
			t.Errorf("visible %+v, sent %+v", got, sent)
		}
		for _, p := range half(topic, 3, "").Properties {
			if got.Properties.Get(p.Name) != p.Value {
				t.Errorf("property %s: got %q, want %q", p.Name, got.Properties.Get(p.Name), p.Value)
			}
		}
	})
}

func TestRolledBackMessageStaysInvisible(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	sent, err := c.Send(t.Context(), broker, half(topic, 0, "body"))
	if err != nil {
		t.Fatal(err)
	}
	end(t, c, broker, topic, sent, Rollback)
	assertQueue(t, c, topic, 0, 0)
}

func TestEndIsRefused(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	sent, err := c.Send(t.Context(), broker, half(topic, 0, "body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(e *EndRequest){
		"half queue offset": func(e *EndRequest) { e.HalfQueueOffset++ },
		"commit log offset": func(e *EndRequest) { e.CommitLogOffset += 1 << 40 },
	} {
		e := endRequest(topic, sent, Commit)
		change(e)
		if err := c.EndTransaction(t.Context(), broker, e); !IsCode(err, CodeSystemError) {
			t.Errorf("%s: got %v, want code %d", name, err, CodeSystemError)
		}
	}
	other := newClient(t, nil)
	if err := other.EndTransaction(t.Context(), broker, endRequest(topic, sent, Commit)); !IsCode(err, CodeSystemError) {
		t.Errorf("another group: got %v, want code %d", err, CodeSystemError)
	}
	assertQueue(t, c, topic, 0, 0)
}

func TestNormalMessage(t *testing.T) {
	codecs(t, func(t *testing.T, c *Client) {
		topic, broker := newTopic(t, c, 2), anyBroker(t, c)
		body := bytes.Repeat([]byte{0, 1, 2, 0xff}, 250_000)
		born := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		sent, err := c.Send(t.Context(), broker, &SendRequest{Topic: topic, QueueID: 1, Body: body, Flag: 7, BornAt: born})
		if err != nil {
			t.Fatal(err)
		}
		got := assertQueue(t, c, topic, 1, 1)[0]
		if !bytes.Equal(got.Body, body) || got.Flag != 7 || got.BornAt != born.UnixMilli() || got.UniqKey() != sent.UniqKey {
			t.Errorf("got %d bytes, flag %d, born %d, id %s", len(got.Body), got.Flag, got.BornAt, got.UniqKey())
		}
		if got.CommitLogOffset != sent.CommitLogOffset || got.QueueOffset != sent.QueueOffset {
			t.Errorf("stored at %d/%d, said %d/%d", got.CommitLogOffset, got.QueueOffset, sent.CommitLogOffset, sent.QueueOffset)
		}
	})
}

func TestBrokerRefusesMessage(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	for name, row := range map[string]struct {
		request SendRequest
		code    int
	}{
		"unknown topic": {SendRequest{Topic: "nowhere-" + topic, Body: []byte("x")}, CodeTopicNotExist},
		"unknown queue": {SendRequest{Topic: topic, QueueID: 9, Body: []byte("x")}, CodeInvalidParameter},
		"system topic":  {SendRequest{Topic: "RMQ_SYS_TRANS_HALF_TOPIC", Body: []byte("x")}, CodeNoPermission},
		"too long":      {SendRequest{Topic: topic, Body: make([]byte, 5<<20)}, CodeMessageIllegal},
	} {
		_, err := c.Send(t.Context(), broker, &row.request)
		if !IsCode(err, row.code) {
			t.Errorf("%s: got %v, want code %d", name, err, row.code)
		}
	}
}

func TestInvalidMessageIsNotSent(t *testing.T) {
	c := newClient(t, nil)
	broker := anyBroker(t, c)
	for name, request := range map[string]SendRequest{
		"no topic":        {Body: []byte("x")},
		"no body":         {Topic: "t"},
		"negative queue":  {Topic: "t", QueueID: -1, Body: []byte("x")},
		"empty property":  {Topic: "t", Body: []byte("x"), Properties: Properties{{"a", ""}}},
		"separator":       {Topic: "t", Body: []byte("x"), Properties: Properties{{"a", "b\x02c\x01d"}}},
		"long properties": {Topic: "t", Body: []byte("x"), Properties: Properties{{"a", string(make([]byte, 1<<15))}}},
		"huge body":       {Topic: "t", Body: make([]byte, maxFrame)},
	} {
		_, err := c.Send(t.Context(), broker, &request)
		if !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrNotSent and ErrInvalid", name, err)
		}
	}
	if err := c.Ping(t.Context(), broker); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestQueryByUniqKey(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	begin := time.Now().Add(-time.Minute)
	sent, err := c.Send(t.Context(), broker, half(topic, 0, "body"))
	if err != nil {
		t.Fatal(err)
	}
	if got := query(t, c, broker, topic, sent.UniqKey, begin); len(got) != 0 {
		t.Errorf("before the commit: got %d messages, want none", len(got))
	}
	end(t, c, broker, topic, sent, Commit)
	await.Success(t, 30*time.Second, func() error {
		got := query(t, c, broker, topic, sent.UniqKey, begin)
		if len(got) != 1 {
			return errors.New("not indexed yet")
		}
		if got[0].PreparedOffset != sent.CommitLogOffset || string(got[0].Body) != "body" {
			t.Errorf("got %+v", got[0])
		}
		return nil
	})
	if got := query(t, c, broker, topic, sent.UniqKey, time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("outside of the time range: got %d messages", len(got))
	}
	if got := query(t, c, broker, topic, UniqKey(), begin); len(got) != 0 {
		t.Errorf("another id: got %d messages", len(got))
	}
}

func query(t *testing.T, c *Client, broker, topic, uniqKey string, begin time.Time) []Message {
	t.Helper()
	got, err := c.QueryByUniqKey(t.Context(), broker, topic, uniqKey, begin, begin.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func endRequest(topic string, sent SendResult, d Decision) *EndRequest {
	return &EndRequest{
		Topic: topic, UniqKey: sent.UniqKey, CommitLogOffset: sent.CommitLogOffset, HalfQueueOffset: sent.QueueOffset, Decision: d,
	}
}

func end(t testing.TB, c *Client, broker, topic string, sent SendResult, d Decision) {
	t.Helper()
	if err := c.EndTransaction(t.Context(), broker, endRequest(topic, sent, d)); err != nil {
		t.Fatal(err)
	}
}

// assertQueue reads a queue from its beginning and expects that many messages. It retries, because a message is in its
// queue some milliseconds after the broker has answered.
func assertQueue(t *testing.T, c *Client, topic string, queue, want int) []Message {
	t.Helper()
	broker := anyBroker(t, c)
	var got PullResult
	await.Success(t, 30*time.Second, func() (err error) {
		got, err = c.Pull(t.Context(), broker, "remoting-test", topic, queue, 0, 32, 0)
		if err == nil && len(got.Messages) < want {
			err = errors.New("message not visible")
		}
		return err
	})
	if len(got.Messages) != want {
		t.Fatalf("queue %d of %s: got %d messages, want %d", queue, topic, len(got.Messages), want)
	}
	return got.Messages
}

func TestOffsets(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	for range 3 {
		if _, err := c.Send(t.Context(), broker, &SendRequest{Topic: topic, Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	assertQueue(t, c, topic, 0, 3)
	maxOffset, err := c.MaxOffset(t.Context(), broker, topic, 0)
	if err != nil || maxOffset != 3 {
		t.Errorf("max offset: got %d, %v; want 3", maxOffset, err)
	}
	minOffset, err := c.MinOffset(t.Context(), broker, topic, 0)
	if err != nil || minOffset != 0 {
		t.Errorf("min offset: got %d, %v; want 0", minOffset, err)
	}
}
