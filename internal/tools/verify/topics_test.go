package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// twoBrokers is a topic on a stack of two brokers, and a client that sends to it.
type twoBrokers struct {
	t     *testing.T
	stack *devstack.Stack
	mq    *remoting.Client
	topic string
	sent  int
}

const testQueues = 3

func newTwoBrokers(t *testing.T, stack *devstack.Stack, topic string) *twoBrokers {
	t.Helper()
	b := &twoBrokers{t: t, stack: stack, topic: topic}
	var err error
	if b.mq, err = remoting.New(remoting.Config{Nameservers: b.stack.Nameservers(), Group: "sender"}); err != nil {
		t.Fatal(err)
	}
	if err := b.mq.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.mq.Close(context.Background()) })
	if err := b.mq.CreateTopic(t.Context(), b.topic, testQueues); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *twoBrokers) reader() *topicReader {
	b.t.Helper()
	r, err := openTopics(b.t.Context(), Broker{Nameservers: b.stack.Nameservers()}, []string{b.topic}, 3*time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(r.close)
	return r
}

// send sends messages with ids 0, 1, 2, … to a queue.
func (b *twoBrokers) send(broker string, queue, count int) {
	b.t.Helper()
	for range count {
		err := retry(b.t.Context(), time.Minute, func(ctx context.Context) error {
			_, err := b.mq.Send(ctx, broker, &remoting.SendRequest{
				Topic: b.topic, QueueID: queue, Body: []byte("x"), Properties: remoting.Properties{{Name: propTxID, Value: fmt.Sprint(b.sent)}},
			})
			return err
		})
		if err != nil {
			b.t.Fatal(err)
		}
		b.sent++
	}
}

// starts returns the queues' ends once they have all messages, because a broker answers a send before the message is in
// its queue.
func (b *twoBrokers) starts(r *topicReader) []start {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		list, err := r.starts(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		total := 0
		for _, s := range list {
			total += int(s.Offset)
		}
		if total == b.sent {
			return list
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("got starts %v, want %d messages before them", list, b.sent)
		}
	}
}

// collected has the messages of a reader.
type collected struct {
	ids     []string
	offsets map[string]int64 // the last one of each queue
	problem string
}

func newCollected() *collected { return &collected{offsets: make(map[string]int64)} }

func (c *collected) take(m *Message) {
	c.ids = append(c.ids, m.ID)
	if last, ok := c.offsets[m.Queue]; ok && m.Offset <= last {
		c.problem = fmt.Sprintf("offset %d of %s comes after %d", m.Offset, m.Queue, last)
	}
	c.offsets[m.Queue] = m.Offset
}

// want checks that each message from the first to the last came once.
func (c *collected) want(t *testing.T, first, last int) {
	t.Helper()
	var want []string
	for i := first; i < last; i++ {
		want = append(want, fmt.Sprint(i))
	}
	got := slices.Clone(c.ids)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || c.problem != "" {
		t.Errorf("got %d messages, want %d to %d once each; %s", len(got), first, last-1, c.problem)
	}
}

// readAll reads until the given number of messages has come. It repeats reading, because a link waits up to 3 s before
// it connects again to a broker that has just started.
func (c *collected) readAll(t *testing.T, r *topicReader, count int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(c.ids) < count; {
		err := r.read(t.Context(), c.take)
		if time.Now().After(deadline) {
			t.Fatalf("got %d messages, want %d: %v", len(c.ids), count, err)
		}
	}
}

func TestTwoBrokers(t *testing.T) {
	t.Parallel()
	stack := stacktest.Private(t, devstack.Options{Brokers: 2})
	t.Run("topics are read to their ends", func(t *testing.T) { testReadToTheEnds(t, newTwoBrokers(t, stack, "one")) })
	t.Run("a broker is away", func(t *testing.T) { testBrokerAway(t, newTwoBrokers(t, stack, "two")) })
}

// testReadToTheEnds reads on from the noted ends, on both brokers, while messages arrive. It also reads a queue that
// cannot be written any more, and a new one.
func testReadToTheEnds(t *testing.T, b *twoBrokers) {
	t.Helper()
	for queue := range testQueues {
		b.send("broker-a", queue, 3)
		b.send("broker-b", queue, 40)
	}
	before := b.sent
	r := b.reader()
	starts := b.starts(r)
	if len(starts) != 2*testQueues || starts[0].Offset != 3 || starts[len(starts)-1].Offset != 40 {
		t.Fatalf("got starts %v", starts)
	}
	r.begin(starts)

	var sending sync.WaitGroup
	sending.Go(func() {
		for queue := range testQueues {
			b.send("broker-b", queue, 70)
			b.send("broker-a", queue, 70)
		}
	})
	got := newCollected()
	for range 5 {
		if err := r.read(t.Context(), got.take); err != nil {
			t.Fatal(err)
		}
	}
	sending.Wait()
	change := func(q remoting.QueueData) {
		if err := b.mq.ChangeTopic(t.Context(), b.topic, q); err != nil {
			t.Fatal(err)
		}
	}
	change(remoting.QueueData{Broker: "broker-b", Read: testQueues, Write: testQueues, Perm: remoting.PermRead})
	change(remoting.QueueData{Broker: "broker-a", Read: 5, Write: 5, Perm: remoting.PermRead | remoting.PermWrite})
	b.send("broker-a", 4, 10)
	got.readAll(t, r, b.sent-before)
	got.want(t, before, b.sent)
}

// testBrokerAway: the error names the queues of a broker that is away, the others are read, and reading goes on when
// the broker is back.
func testBrokerAway(t *testing.T, b *twoBrokers) {
	t.Helper()
	r := b.reader()
	r.begin(b.starts(r))
	got := newCollected()
	b.send("broker-a", 0, 50)
	b.send("broker-b", 1, 50)
	got.readAll(t, r, 100)
	b.send("broker-b", 1, 20)
	b.stack.Broker(1).Kill()
	b.send("broker-a", 0, 20)
	for deadline := time.Now().Add(time.Minute); len(got.ids) < 120; {
		err := r.read(t.Context(), got.take)
		for queue := range testQueues {
			if want := fmt.Sprintf("queue broker-b:%d of topic %s cannot be read", queue, b.topic); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		if err == nil || strings.Contains(err.Error(), "broker-a") {
			t.Errorf("got %v, want nothing of broker-a", err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d messages, want the 120 that are there", len(got.ids))
		}
	}
	if err := b.stack.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got.readAll(t, r, 140)
	got.want(t, 0, b.sent)
}
