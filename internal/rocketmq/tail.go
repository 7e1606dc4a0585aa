package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	tailGroup = "txsvc-tail" // named to brokers with access control; nothing is committed for it
	tailWait  = 5 * time.Second
	tailBatch = 32
	tailRetry = time.Second
)

// Tailed is a message that was read from its queue.
type Tailed struct {
	Message    txn.Message
	Properties map[string]string // all, RocketMQ's own too
	Offset     int64             // in its queue
	StoredAt   time.Time
}

// Tail reads all queues of the topic, from their ends or from their beginnings. It calls handle for each message, in the order
// of each queue, and never for two at once. It returns when ctx is done, or with handle's error.
func (c *Client) Tail(ctx context.Context, topic string, fromStart bool, handle func(Tailed) error) error {
	queues, err := c.Queues(ctx, topic)
	if err != nil {
		return err
	}
	offsets := make([]int64, len(queues))
	for i, q := range queues {
		if offsets[i], err = c.firstOffset(ctx, topic, q, fromStart); err != nil {
			return fmt.Errorf("looking where queue %s of topic %s begins: %w", q, topic, err)
		}
	}
	messages := make(chan Tailed)
	g, ctx := errgroup.WithContext(ctx)
	for i, q := range queues {
		g.Go(func() error { return c.tailQueue(ctx, topic, q, offsets[i], messages) })
	}
	g.Go(func() error { return handleAll(ctx, messages, handle) })
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func handleAll(ctx context.Context, messages <-chan Tailed, handle func(Tailed) error) error {
	for {
		select {
		case m := <-messages:
			if err := handle(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Client) firstOffset(ctx context.Context, topic string, q txn.Queue, fromStart bool) (int64, error) {
	if fromStart {
		return c.remote.MinOffset(ctx, q.Broker, topic, q.ID)
	}
	return c.remote.MaxOffset(ctx, q.Broker, topic, q.ID)
}

// tailQueue reads one queue until ctx ends. It waits for a broker that is away.
func (c *Client) tailQueue(ctx context.Context, topic string, q txn.Queue, offset int64, messages chan<- Tailed) error {
	for {
		result, err := c.remote.Pull(ctx, q.Broker, tailGroup, topic, q.ID, offset, tailBatch, tailWait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.log.WarnContext(ctx, "reading a queue", "queue", q.String(), "error", err)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(tailRetry):
			}
			continue
		}
		for i := range result.Messages {
			select {
			case messages <- tailed(q.Broker, &result.Messages[i]):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		offset = result.NextOffset
	}
}

func tailed(broker string, m *remoting.Message) Tailed {
	return Tailed{Message: stored(broker, m), Offset: m.QueueOffset, StoredAt: time.UnixMilli(m.StoredAt)}
}
