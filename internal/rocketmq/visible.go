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

// halfTopic is the topic of half messages that are not ended. Brokers with transRocksDBEnable=true and
// transWriteOriginTransHalfEnable=false have RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC instead.
const halfTopic = "RMQ_SYS_TRANS_HALF_TOPIC"

// halfTopicOf returns the topic in which half messages of the broker were seen last.
func (c *Client) halfTopicOf(broker string) string {
	if topic, ok := c.halfTopics.Load(broker); ok {
		return topic.(string) //nolint:forcetypeassert // only strings are stored
	}
	return halfTopic
}

// halves returns the copies of a half message that the broker's index knows. The message at the commit-log offset shows in which
// topic they are, because a broker may have another half topic after a restart.
func (c *Client) halves(ctx context.Context, broker, uniqKey string, at int64, since time.Time) ([]remoting.Message, error) {
	topic := c.halfTopicOf(broker)
	found, err := c.remote.QueryByUniqKey(ctx, broker, topic, uniqKey, since, time.Time{})
	if err != nil || len(found) > 0 {
		return found, err
	}
	m, err := c.remote.View(ctx, broker, topic, at)
	if remoting.IsCode(err, remoting.CodeSystemError) { // nothing can be read there, or not yet
		return nil, nil
	}
	if err != nil || m.UniqKey() != uniqKey || m.Topic == topic {
		return nil, err
	}
	c.halfTopics.Store(broker, m.Topic)
	return c.remote.QueryByUniqKey(ctx, broker, m.Topic, uniqKey, since, time.Time{})
}

// Reach says how far a half message has come; see delivery.Broker. A queue's end counts the messages that are in the queue, not
// those that are in the log only.
func (c *Client) Reach(ctx context.Context, h txn.Half) (txn.Reach, error) {
	found, err := c.halves(ctx, h.Broker, h.UniqKey, h.CommitLogOffset, time.Time{})
	if len(found) > 0 {
		return txn.ReachIndex, nil
	}
	end := int64(0)
	if err == nil {
		end, err = c.remote.MaxOffset(ctx, h.Broker, c.halfTopicOf(h.Broker), 0)
	}
	switch {
	case remoting.IsCode(err, remoting.CodeNoPermission):
		return txn.ReachNothing, &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNotTold, Cause: err}
	case err != nil:
		return txn.ReachNothing, questionError(err, "looking how far the half message has come")
	case end > h.QueueOffset:
		return txn.ReachQueue, nil
	default:
		return txn.ReachNothing, nil
	}
}

// Visible counts the copies of a message; see delivery.Broker. A message in the broker's index is visible. The index may have a
// hole: when a broker starts after a crash, it deletes the index file that it was writing, and indexes anew only from the
// commit-log file in which its recovery begins (IndexService.load, CommitLog.recoverAbnormally, messageIndexSafe). So the queue
// is read where the index may have a hole, or is not known to work.
func (c *Client) Visible(ctx context.Context, m txn.Message, first int64, since time.Time, indexed bool) (int, error) {
	copies, err := c.copies(ctx, m, first, since, indexed)
	return copies, questionError(err, "looking whether the message is visible")
}

func (c *Client) copies(ctx context.Context, m txn.Message, first int64, since time.Time, indexed bool) (int, error) {
	found, err := c.remote.QueryByUniqKey(ctx, m.Queue.Broker, m.Topic, m.UniqKey, since, time.Time{})
	if err != nil || len(found) > 0 {
		return len(found), err
	}
	if indexed {
		complete, err := c.indexIsComplete(ctx, m, first, since)
		if err != nil || complete {
			return 0, err
		}
	}
	copies, err := c.countInQueue(ctx, m, since)
	if cannotRead(err) {
		c.log.WarnContext(ctx, "the broker's index may have lost a message that is visible, and its queue cannot be read: it may become visible twice",
			"id", m.TxID, "message_id", m.UniqKey, "group", recoveryGroup, "error", err)
		return 0, nil
	}
	return copies, err
}

// cannotRead reports whether the group or its permission is missing, or the queue is gone.
func cannotRead(err error) bool {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	return ok && slices.Contains([]int{
		remoting.CodeNoPermission, remoting.CodeNoSubscriptionGroup, remoting.CodeTopicNotExist, remoting.CodeInvalidParameter,
	}, answer.Code)
}

// indexIsComplete reports whether the index has no hole behind the moment or offset: the broker has not started since, or the
// index has the half message as it was stored first.
func (c *Client) indexIsComplete(ctx context.Context, m txn.Message, first int64, since time.Time) (bool, error) {
	if at, ok := c.remote.ConnectedSince(m.Queue.Broker); ok && at.Before(since) {
		return true, nil
	}
	if first < 0 {
		return false, nil
	}
	halves, err := c.halves(ctx, m.Queue.Broker, m.UniqKey, first, since)
	return slices.ContainsFunc(halves, func(h remoting.Message) bool { return h.CommitLogOffset == first }), err
}

const (
	// recoveryGroup is named to brokers when queues are read; nothing is committed for it.
	recoveryGroup = "txsvc-recovery"
	recoveryBatch = 32
	// readingKept is how long a reading is retained for others, and readingLimit how many messages it may have.
	readingKept  = time.Minute
	readingLimit = 1_000_000
)

type readingOf struct {
	topic string
	queue txn.Queue
}

// reading is what was read of a queue. It is shared, because many ask at once when a broker is back.
type reading struct {
	mu     sync.Mutex
	since  time.Time // earlier messages were not read
	next   int64
	used   time.Time
	copies map[string]int // by UNIQ_KEY
}

// countInQueue reads the queue up to its present end. It fails when ctx ends before; the next call goes on from there.
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

// readingOf returns the reading of a queue, and forgets readings that have not been used for a while.
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
