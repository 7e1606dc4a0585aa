package rocketmq

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	believeSettings = 30 * time.Second // a broker's answer about a topic
	believeSilence  = time.Second      // that it gave none
)

// settings caches the brokers' answers about topics.
type settings struct {
	asking singleflight.Group
	mu     sync.Mutex
	known  map[topicAt]setting
}

type topicAt struct{ broker, topic string }

type setting struct {
	compacted bool
	until     time.Time
}

// Refusals returns the reasons, each with its field, for which the broker of the message's queue is known to refuse the message, or not to retain it;
// see messages.Broker. The broker is asked for the topic's settings now and then; without an answer nothing is refused.
func (c *Client) Refusals(ctx context.Context, m *txn.Message) []*txn.SendError {
	var wrong []*txn.SendError
	version := c.remote.BrokerVersion(m.Queue.Broker) // 0: not known yet, and then it cannot be reached either
	if !m.DeliverAt.IsZero() && version != 0 && version < remoting.VersionTimer {
		wrong = append(wrong, invalidField(txn.FieldDeliverAt, "the broker's RocketMQ is older than 5.0 and cannot deliver at a given time: use delay_level"))
	}
	if len(m.Keys) == 0 && m.TxID == "" && version >= remoting.VersionTimer && c.compacted(ctx, topicAt{m.Queue.Broker, m.Topic}) {
		wrong = append(wrong, invalidField(txn.FieldKeys, textKeyMissing))
	}
	return wrong
}

func (c *Client) compacted(ctx context.Context, at topicAt) bool {
	s := &c.settings
	s.mu.Lock()
	known := s.known[at]
	s.mu.Unlock()
	if time.Now().Before(known.until) {
		return known.compacted
	}
	answer, _, _ := s.asking.Do(at.broker+" "+at.topic, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timing.SettingsWithin)
		defer cancel()
		config, err := c.remote.TopicConfig(ctx, at.broker, at.topic)
		next := setting{config.Compacted(), time.Now().Add(believeSettings)}
		if err != nil {
			next = setting{known.compacted, time.Now().Add(believeSilence)}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known[at] = next
		return next.compacted, nil
	})
	return answer.(bool) //nolint:forcetypeassert // the function above returns nothing else
}
