package routing

import (
	"context"

	"github.com/txsvc/txsvc/internal/txn"
)

// codedBroker gives the broker's errors the codes that clients see, because much of what routing is asked goes to them as it is.
type codedBroker struct{ Broker }

const unasked = "the topic's queues are not known"

func (b codedBroker) Queues(ctx context.Context, topic string) ([]txn.Queue, error) {
	queues, err := b.Broker.Queues(ctx, topic)
	return queues, txn.Coded(err, unasked)
}

func (b codedBroker) JavaQueues(ctx context.Context, topic string) (txn.JavaQueues, error) {
	queues, err := b.Broker.JavaQueues(ctx, topic)
	return queues, txn.Coded(err, unasked)
}

func (b codedBroker) Topic(ctx context.Context, topic string) (txn.TopicLayout, error) {
	layout, err := b.Broker.Topic(ctx, topic)
	return layout, txn.Coded(err, unasked)
}
