package routing

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/txsvc/txsvc/internal/txn"
)

// Unread says that consumers are known not to read a queue; see delivery.Queues.
func (r *Router) Unread(topic string, q txn.Queue) bool { return r.broker.Unread(topic, q) }

// Removed says whether a queue was removed for good; see delivery.Queues.
func (r *Router) Removed(ctx context.Context, topic string, q txn.Queue) (bool, error) {
	return r.broker.Removed(ctx, topic, q)
}

// NewUniqKey returns a fresh UNIQ_KEY.
func (r *Router) NewUniqKey() string { return r.broker.NewUniqKey() }

// Choose picks a live queue for a message whose own queue was removed. It asks the selector of the message's kind. The
// selector gets the payload, but neither selector_arg nor headers, because the row does not have them. When the
// selector cannot choose without them, or the kind is not configured any more, Choose hashes the shard key. It ignores
// the accepted list, because the message's queue is gone anyway.
func (r *Router) Choose(ctx context.Context, m txn.Message) (txn.Route, error) {
	var live []txn.Queue
	var err error
	if v := r.views[m.Topic]; v != nil {
		live, err = r.look(ctx, v)
	} else {
		live, err = r.broker.Queues(ctx, m.Topic)
	}
	if err != nil {
		return txn.Route{}, err
	}
	if kind := r.kinds[m.Kind]; kind != nil && kind.Topic == m.Topic {
		java := txn.JavaQueues{Queues: live}
		if kind.Java {
			java, err = r.broker.JavaQueues(ctx, m.Topic)
		}
		if err == nil {
			route, err := kind.Selector.Select(java.Queues, txn.SelectorInput{ShardKey: m.ShardKey, Payload: m.Body})
			if err == nil && contains(live, route.Queue) {
				return route, nil
			}
		}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.ShardKey))
	i := h.Sum64() % uint64(len(live))
	return txn.Route{
		Queue: live[i], Selector: "hash", Reason: fmt.Sprintf("fnv1a64(shard_key) mod %d = %d, since its queue was removed", len(live), i),
	}, nil
}
