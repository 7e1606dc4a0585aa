package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Indexed says whether the broker's index knows a half message; see delivery.Broker.
func (c *Client) Indexed(ctx context.Context, h txn.Half) (bool, error) {
	found, err := c.remote.QueryByUniqKey(ctx, h.Broker, halfTopic, h.UniqKey, time.Time{}, time.Time{})
	if remoting.IsCode(err, remoting.CodeNoPermission) {
		return false, fmt.Errorf("%w: %w", txn.ErrNotTold, err)
	}
	return len(found) > 0, err
}

// Visible counts the copies of a message; see delivery.Broker. What the broker's index knows is there. It has holes: a broker
// that did not end in its orderly way deletes, when it starts, the index file that it was writing, and indexes anew from
// the commit-log file on in which its recovery begins (IndexService.load, CommitLog.recoverAbnormally, messageIndexSafe).
// So where there may be one, the queue is read.
func (c *Client) Visible(ctx context.Context, m txn.Message, first int64, since time.Time) (int, error) {
	found, err := c.remote.QueryByUniqKey(ctx, m.Queue.Broker, m.Topic, m.UniqKey, since, time.Time{})
	if err != nil || len(found) > 0 {
		return len(found), err
	}
	complete, err := c.indexIsComplete(ctx, m, first, since)
	if err != nil || complete {
		return 0, err
	}
	copies, err := c.countInQueue(ctx, m, since)
	if cannotRead(err) {
		c.log.WarnContext(ctx, "the broker's index may have lost a message that is visible, and its queue cannot be read: it may become visible twice",
			"id", m.TxID, "message_id", m.UniqKey, "group", recoveryGroup, "error", err)
		return 0, nil
	}
	return copies, err
}

// cannotRead: the group or its permission is missing, or the queue is gone.
func cannotRead(err error) bool {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	return ok && slices.Contains([]int{
		remoting.CodeNoPermission, remoting.CodeNoSubscriptionGroup, remoting.CodeTopicNotExist, remoting.CodeInvalidParameter,
	}, answer.Code)
}

// indexIsComplete says whether the index has no hole behind the moment or offset: the broker has not started since, or the
// half message is there, as it was stored first.
func (c *Client) indexIsComplete(ctx context.Context, m txn.Message, first int64, since time.Time) (bool, error) {
	if at, ok := c.remote.ConnectedSince(m.Queue.Broker); ok && at.Before(since) {
		return true, nil
	}
	if first < 0 {
		return false, nil
	}
	halves, err := c.remote.QueryByUniqKey(ctx, m.Queue.Broker, halfTopic, m.UniqKey, since, time.Time{})
	return slices.ContainsFunc(halves, func(h remoting.Message) bool { return h.CommitLogOffset == first }), err
}

const (
	// recoveryGroup is named to brokers when queues are read; nothing is committed for it.
	recoveryGroup = "txsvc-recovery"
	recoveryBatch = 32
	// readingKept is how long what was read is kept for the next one who asks, and readingLimit how many messages at most.
	readingKept  = time.Minute
	readingLimit = 1_000_000
)

type readingOf struct {
	topic string
	queue txn.Queue
}

// reading is what was read of a queue: many ask at once, when a broker is back.
type reading struct {
	mu     sync.Mutex
	since  time.Time // what was stored before was not read
	next   int64
	used   time.Time
	copies map[string]int // by UNIQ_KEY
}

// countInQueue reads the queue up to its present end. When ctx ends before, it is an error, and the next call goes on.
func (c *Client) countInQueue(ctx context.Context, m txn.Message, since time.Time) (int, error) {
	r := c.readingOf(readingOf{m.Topic, m.Queue})
	r.mu.Lock()
	defer r.mu.Unlock()
	q := m.Queue
	if r.copies == nil || since.Before(r.since) || len(r.copies) > readingLimit {
		next, err := c.remote.SearchOffset(ctx, q.Broker, m.Topic, q.ID, since)
		if err != nil {
			return 0, err
		}
		r.since, r.next, r.copies = since, next, make(map[string]int)
	}
	r.used = time.Now()
	end, err := c.remote.MaxOffset(ctx, q.Broker, m.Topic, q.ID)
	if err != nil {
		return 0, err
	}
	for r.next < end {
		result, err := c.remote.Pull(ctx, q.Broker, recoveryGroup, m.Topic, q.ID, r.next, recoveryBatch, 0)
		if err != nil {
			return 0, err
		}
		for i := range result.Messages {
			r.copies[result.Messages[i].UniqKey()]++
		}
		if result.NextOffset <= r.next {
			return 0, fmt.Errorf("reading queue %s of topic %s: nothing comes at %d of %d", q, m.Topic, r.next, end)
		}
		r.next = result.NextOffset
	}
	return r.copies[m.UniqKey], nil
}

// readingOf forgets what nobody has asked for in a while, unless it is in use.
func (c *Client) readingOf(of readingOf) *reading {
	c.readingsMu.Lock()
	defer c.readingsMu.Unlock()
	for each, r := range c.readings {
		if r.mu.TryLock() {
			if time.Since(r.used) > readingKept {
				delete(c.readings, each)
			}
			r.mu.Unlock()
		}
	}
	r := c.readings[of]
	if r == nil {
		r = &reading{used: time.Now()}
		c.readings[of] = r
	}
	return r
}
