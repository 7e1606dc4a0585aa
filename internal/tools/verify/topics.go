package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
)

// Message is one message as a consumer sees it.
type Message struct {
	Topic      string
	Queue      string // "broker:id"
	Offset     int64
	ID         string // TX_ID
	Kind       string // TX_KIND
	ShardKey   string // SHARDING_KEY
	Tag        string
	Keys       string // separated by spaces, as in RocketMQ
	MessageID  string // UNIQ_KEY
	Property   string // the property that some requests have
	Body       []byte
	Unreadable bool // the body is compressed in a way that cannot be undone here
}

// Properties that the service gives its messages.
const (
	propTxID   = "TX_ID"
	propTxKind = "TX_KIND"
)

func messageOf(broker string, m *remoting.Message) *Message {
	p := m.Properties
	return &Message{
		Topic: m.Topic, Queue: queueName(broker, int(m.QueueID)), Offset: m.QueueOffset, ID: p.Get(propTxID), Kind: p.Get(propTxKind),
		ShardKey: p.Get(remoting.PropShardingKey), Tag: p.Get(remoting.PropTags), Keys: p.Get(remoting.PropKeys),
		MessageID: m.UniqKey(), Property: p.Get(propertyName), Body: m.Body, Unreadable: m.Compressed,
	}
}

// transactionID returns the id of the message's transaction: TX_ID or, if that is missing, the first of its keys.
func (m *Message) transactionID() string {
	if m.ID != "" {
		return m.ID
	}
	first, _, _ := strings.Cut(m.Keys, " ")
	return first
}

// readGroup is the consumer group for brokers with access control. No offset is committed for it.
const readGroup = "txsvc-verify"

// topicReader reads all queues of the topics from where they ended when the run began.
type topicReader struct {
	remote *remoting.Client
	topics []string
	// patience bounds the retries of one request.
	patience time.Duration

	mu     sync.Mutex
	queues map[queueKey]*queueRead
}

type queueKey struct {
	topic, broker string
	queue         int
}

func (k queueKey) String() string {
	return fmt.Sprintf("%s of topic %s", queueName(k.broker, k.queue), k.topic)
}

// queueRead is the progress in one queue.
type queueRead struct {
	next    int64
	read    bool  // up to its end, the last time
	gone    int64 // messages that the broker no longer had
	problem error
}

// Broker has the addresses and keys of RocketMQ.
type Broker struct {
	Nameservers []string
	AccessKey   string
	SecretKey   string
}

func openTopics(ctx context.Context, b Broker, topics []string, patience time.Duration) (*topicReader, error) {
	remote, err := remoting.New(remoting.Config{
		Nameservers: b.Nameservers, Group: readGroup, AccessKey: b.AccessKey, SecretKey: b.SecretKey, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	if err := remote.Start(ctx); err != nil {
		return nil, err
	}
	return &topicReader{remote: remote, topics: topics, patience: patience, queues: make(map[queueKey]*queueRead)}, nil
}

func (t *topicReader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = t.remote.Close(ctx)
}

// list returns all queues of the topics that can be read, also those that cannot be written any more.
func (t *topicReader) list(ctx context.Context) ([]queueKey, error) {
	var keys []queueKey
	for _, topic := range t.topics {
		route, err := t.remote.RefreshRoute(ctx, topic)
		if err != nil {
			return nil, fmt.Errorf("asking where topic %s is: %w", topic, err)
		}
		for _, q := range route.Queues {
			if q.Perm&remoting.PermRead == 0 {
				continue
			}
			for id := range q.Read {
				keys = append(keys, queueKey{topic, q.Broker, id})
			}
		}
	}
	slices.SortFunc(keys, func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.broker, b.broker), cmp.Compare(a.queue, b.queue))
	})
	return keys, nil
}

// starts notes where all queues end now.
func (t *topicReader) starts(ctx context.Context) (list []start, err error) {
	err = retry(ctx, startLimit, func(ctx context.Context) error {
		keys, err := t.list(ctx)
		if err != nil {
			return err
		}
		list = list[:0]
		for _, k := range keys {
			offset, err := t.remote.MaxOffset(ctx, k.broker, k.topic, k.queue)
			if err != nil {
				return fmt.Errorf("asking where queue %s ends: %w", k, err)
			}
			list = append(list, start{k.topic, k.broker, k.queue, offset})
		}
		return nil
	})
	return list, err
}

// begin sets where reading begins.
func (t *topicReader) begin(starts []start) {
	for _, s := range starts {
		t.queues[queueKey{s.Topic, s.Broker, s.Queue}] = &queueRead{next: s.Offset}
	}
}

// read passes on all messages up to the queues' present ends, in the order of each queue, and never two at once. The
// next call goes on from there. The error names queues that cannot be read until ctx ends; read reads the others.
func (t *topicReader) read(ctx context.Context, handle func(*Message)) error {
	keys, err := t.all(ctx)
	if err != nil {
		return err
	}
	var handling sync.Mutex
	var group errgroup.Group
	group.SetLimit(16)
	for _, k := range keys {
		group.Go(func() error {
			q := t.state(k)
			q.problem = t.readQueue(ctx, k, q, func(m *Message) {
				handling.Lock()
				defer handling.Unlock()
				handle(m)
			})
			return nil
		})
	}
	_ = group.Wait() // each queue has its own error
	return t.problems()
}

// all returns the queues that exist now, and those that existed at the start.
func (t *topicReader) all(ctx context.Context) ([]queueKey, error) {
	var keys []queueKey
	err := retry(ctx, t.patience, func(ctx context.Context) (err error) { keys, err = t.list(ctx); return err })
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		t.state(k)
	}
	keys = keys[:0]
	for k := range t.queues {
		keys = append(keys, k)
	}
	return keys, nil
}

func (t *topicReader) state(k queueKey) *queueRead {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues[k] == nil {
		t.queues[k] = &queueRead{} // a queue that was added during the run
	}
	return t.queues[k]
}

func (t *topicReader) readQueue(ctx context.Context, k queueKey, q *queueRead, handle func(*Message)) error {
	q.read = false
	var end int64
	err := retry(ctx, t.patience, func(ctx context.Context) (err error) {
		end, err = t.remote.MaxOffset(ctx, k.broker, k.topic, k.queue)
		return err
	})
	if err != nil {
		return fmt.Errorf("queue %s cannot be read: %w", k, err)
	}
	if end < q.next {
		return fmt.Errorf("queue %s ended at %d, and ends at %d now: its broker has lost messages", k, q.next, end)
	}
	for q.next < end {
		if err := t.pull(ctx, k, q, handle); err != nil {
			return fmt.Errorf("queue %s was read up to %d of %d: %w", k, q.next, end, err)
		}
	}
	q.read = true
	return nil
}

// pullBatch is the largest number of messages that a broker returns at a time (maxTransferCountOnMessageInMemory).
const pullBatch = 32

var errStuck = errors.New("the broker gives nothing out")

func (t *topicReader) pull(ctx context.Context, k queueKey, q *queueRead, handle func(*Message)) error {
	return retry(ctx, t.patience, func(ctx context.Context) error {
		result, err := t.remote.Pull(ctx, k.broker, readGroup, k.topic, k.queue, q.next, pullBatch, 0)
		if err != nil {
			return err
		}
		if result.MinOffset > q.next {
			q.gone += result.MinOffset - q.next
		}
		for i := range result.Messages {
			if m := &result.Messages[i]; m.QueueOffset >= q.next {
				handle(messageOf(k.broker, m))
				q.next = m.QueueOffset + 1
			}
		}
		if result.NextOffset <= q.next && len(result.Messages) == 0 {
			return errStuck
		}
		q.next = max(q.next, result.NextOffset)
		return nil
	})
}

// problems returns the reasons why queues could not be read.
func (t *topicReader) problems() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []error
	for k, q := range t.queues {
		if q.problem != nil {
			list = append(list, q.problem)
		}
		if q.gone > 0 {
			list = append(list, fmt.Errorf("queue %s: %d messages of the run were deleted by the broker's retention before they were read", k, q.gone))
		}
	}
	slices.SortFunc(list, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(list...)
}
