package rocketmq

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// queueList is made from a route, once for each.
type queueList struct {
	route   *remoting.Route
	list    []txn.Queue
	java    txn.JavaQueues
	javaErr error
}

// Queues returns the topic's queues that can be written and are read by consumers, sorted, by the name servers' latest
// answer. The list is shared and must not be changed; it is the same slice for as long as the queues are the same. The error
// is a *txn.SendError, with txn.ReasonNoQueue when it is known that there is none.
func (c *Client) Queues(ctx context.Context, topic string) ([]txn.Queue, error) {
	known, err := c.listed(ctx, topic)
	if err != nil {
		return nil, err
	}
	if len(known.list) == 0 {
		return nil, noQueue(nil, "topic %s has no queue that can be written and is read by consumers", topic)
	}
	return known.list, nil
}

// JavaQueues returns the list from which producers in Java choose; see routing.Broker. It is shared and must not be changed.
func (c *Client) JavaQueues(ctx context.Context, topic string) (txn.JavaQueues, error) {
	known, err := c.listed(ctx, topic)
	if err != nil {
		return txn.JavaQueues{}, err
	}
	return known.java, known.javaErr
}

func (c *Client) listed(ctx context.Context, topic string) (queueList, error) {
	route, err := c.remote.Route(ctx, topic)
	if err != nil {
		return queueList{}, routeError(topic, err)
	}
	c.mu.RLock()
	known := c.queues[topic]
	c.mu.RUnlock()
	if known.route != route {
		known = c.refreshed(topic, route)
	}
	return known, nil
}

func (c *Client) refreshed(topic string, route *remoting.Route) queueList {
	list := usable(route)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.queues[topic].list; slices.Equal(before, list) {
		list = before
	}
	java, javaErr := javaQueues(route)
	if before := c.queues[topic].java.Queues; slices.Equal(before, java.Queues) {
		java.Queues = before
	}
	c.queues[topic] = queueList{route, list, java, javaErr}
	return c.queues[topic]
}

// javaQueues does the same as MQClientInstance.topicRouteData2TopicPublishInfo. The list of an order topic comes from its
// orderTopicConf alone, in that order and with those numbers, whether the brokers are there or not. The list of another topic
// has all queues that can be written.
func javaQueues(route *remoting.Route) (txn.JavaQueues, error) {
	java := txn.JavaQueues{Order: route.Order}
	switch {
	case route.Order != "":
		for part := range strings.SplitSeq(strings.TrimRight(route.Order, ";"), ";") {
			items := strings.Split(part, ":")
			n, err := strconv.Atoi(items[min(1, len(items)-1)])
			if len(items) < 2 || err != nil {
				return java, settingsError(err,
					"topic %s has an order configuration that no Java client can read either: it is like broker-a:4;broker-b:4", route.Topic)
			}
			for id := range n {
				java.Queues = append(java.Queues, txn.Queue{Broker: items[0], ID: id})
			}
		}
	case route.Static:
		return java, settingsError(nil, "topic %s is a static one: java_hash does not know which of its queues producers in Java choose", route.Topic)
	default:
		for _, q := range route.Queues {
			for id := range q.Writable() {
				java.Queues = append(java.Queues, txn.Queue{Broker: q.Broker, ID: id})
			}
		}
		slices.SortFunc(java.Queues, txn.Queue.Compare)
	}
	if len(java.Queues) == 0 {
		return java, noQueue(nil, "topic %s has no queue that producers in Java would choose", route.Topic)
	}
	return java, nil
}

func usable(route *remoting.Route) []txn.Queue {
	var list []txn.Queue
	for _, q := range route.Queues {
		for id := range q.Usable() {
			list = append(list, txn.Queue{Broker: q.Broker, ID: id})
		}
	}
	slices.SortFunc(list, txn.Queue.Compare)
	return list
}

// Topic returns what name servers know of the topic's brokers, by their latest answer. Errors are those of Queues.
func (c *Client) Topic(ctx context.Context, topic string) (txn.TopicLayout, error) {
	route, err := c.remote.Route(ctx, topic)
	if err != nil {
		return txn.TopicLayout{}, routeError(topic, err)
	}
	layout := txn.TopicLayout{Absent: route.Absent}
	for _, q := range route.Queues {
		layout.Brokers = append(layout.Brokers, txn.BrokerLayout{
			Broker: q.Broker, Read: q.Read, Write: q.Write, Writable: q.Writable(), Readable: q.Readable(),
		})
	}
	return layout, nil
}

// Refresh asks a name server for the topic's route now.
func (c *Client) Refresh(ctx context.Context, topic string) error {
	if _, err := c.remote.RefreshRoute(ctx, topic); err != nil {
		return routeError(topic, err)
	}
	return nil
}

// Readable says, from memory, whether consumers read the queue; see txn.QueueWatch.
func (c *Client) Readable(topic string, q txn.Queue) bool {
	share, ok := shareOf(c.remote.KnownRoute(topic), q.Broker)
	return ok && q.ID < share.Readable()
}

// Unread says, from memory, that the topic's broker is known and consumers do not read this queue of it; see delivery.Queues.
func (c *Client) Unread(topic string, q txn.Queue) bool {
	share, ok := shareOf(c.remote.KnownRoute(topic), q.Broker)
	return ok && q.ID >= share.Readable()
}

func shareOf(route *remoting.Route, broker string) (remoting.QueueData, bool) {
	if route == nil {
		return remoting.QueueData{}, false
	}
	i := slices.IndexFunc(route.Queues, func(share remoting.QueueData) bool { return share.Broker == broker })
	if i < 0 {
		return remoting.QueueData{}, false
	}
	return route.Queues[i], true
}

// Removed reports whether the queue was removed for good: its broker is there, and consumers cannot read the queue from it. A
// name server is asked, unless one has answered a moment ago; without an answer the last one counts. The broker has the last
// word, because name servers may miss a queue for a while. An error means that nothing is known: the topic or its broker is
// missing, or reading the topic is forbidden for now.
func (c *Client) Removed(ctx context.Context, topic string, q txn.Queue) (bool, error) {
	route, err := c.latest(ctx, topic)
	if err != nil {
		return false, routeError(topic, err)
	}
	if share, ok := shareOf(route, q.Broker); ok {
		switch {
		case share.Readable() < share.Read:
			return false, settingsError(nil, "consumers must not read topic %s on broker %s now", topic, q.Broker)
		case q.ID < share.Read:
			return false, nil
		}
		return c.lacks(ctx, topic, q)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.AskRouteWithin)
	defer cancel()
	masters, err := c.remote.Masters(ctx)
	if err != nil {
		return false, questionError(err, "asking for the brokers")
	}
	if !slices.Contains(masters, q.Broker) {
		return false, questionError(errors.New("name servers do not list the broker "+q.Broker), "asking for the brokers")
	}
	return c.lacks(ctx, topic, q)
}

// lacks asks the broker whether it has no such queue. A broker older than RocketMQ 5 cannot be asked; then the name servers'
// answer counts.
func (c *Client) lacks(ctx context.Context, topic string, q txn.Queue) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.AskRouteWithin)
	defer cancel()
	share, err := c.remote.TopicConfig(ctx, q.Broker, topic)
	switch {
	case remoting.IsCode(err, remoting.CodeTopicNotExist), remoting.IsCode(err, remoting.CodeNotSupported):
		return true, nil
	case err != nil:
		return false, questionError(err, "asking the broker whether it has the queue")
	}
	return q.ID >= share.Read, nil
}

// latest returns a recent route, or the last one when no name server answers.
func (c *Client) latest(ctx context.Context, topic string) (*remoting.Route, error) {
	known := c.remote.KnownRoute(topic)
	if known != nil && (time.Since(known.Fetched) < c.timing.BelieveRoute || c.remote.Status().NameserverErr != nil) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timing.AskRouteWithin)
	defer cancel()
	route, err := c.remote.RefreshRoute(ctx, topic)
	if err != nil && known != nil && !remoting.IsCode(err, remoting.CodeTopicNotExist) {
		return known, nil
	}
	return route, err
}
