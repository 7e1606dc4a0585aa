package remoting

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// keepVanished is how long queues of a connected broker are kept of which name
// servers know neither the broker nor the topic: one that has just started knows
// only the brokers that have registered since, which they do every 30 s, at most
// every 60 s.
const keepVanished = 2 * time.Minute

// share is one broker's share of a topic.
type share struct{ topic, broker string }

// askRoute asks for a route, and makes good what a name server that has just
// started cannot know. A broker registers with all its topics. So when its queues
// are missing, they are gone if the name server lists the broker: the topic was
// deleted there. If it does not list it, either the broker is gone too, and then
// it is not connected; or the name server has not heard of it yet.
func (c *Client) askRoute(ctx context.Context, topic string) (Route, error) {
	route, err := c.names.fetchRoute(ctx, topic)
	known := (*c.routes.Load())[topic]
	if known == nil || err != nil && !IsCode(err, CodeTopicNotExist) || err == nil && len(missing(known, &route)) == 0 {
		c.seen(topic, &route)
		return route, err
	}
	masters, mastersErr := c.names.fetchMasters(ctx)
	if mastersErr != nil {
		return Route{}, mastersErr
	}
	// Asked again: a broker may have registered between the two answers.
	route, err = c.names.fetchRoute(ctx, topic)
	if err != nil && !IsCode(err, CodeTopicNotExist) {
		return Route{}, err
	}
	c.seen(topic, &route)
	kept := c.keep(topic, missing(known, &route), masters)
	if err != nil && len(kept) == 0 {
		return Route{}, err
	}
	if err != nil {
		route.Order, route.Static = known.Order, known.Static
	}
	route.Topic, route.Fetched = topic, time.Now()
	route.Queues = append(route.Queues, kept...)
	slices.SortFunc(route.Queues, func(a, b QueueData) int { return cmp.Compare(a.Broker, b.Broker) })
	return route, nil
}

// missing returns what the known route has of brokers that are not in the new one.
func missing(known, route *Route) []QueueData {
	var list []QueueData
	for _, q := range known.Queues {
		if !slices.ContainsFunc(route.Queues, func(other QueueData) bool { return other.Broker == q.Broker }) {
			list = append(list, q)
		}
	}
	return list
}

// keep returns those of the vanished shares that are believed to be there still.
func (c *Client) keep(topic string, vanished []QueueData, masters []Master) []QueueData {
	var kept []QueueData
	for _, q := range vanished {
		listed := slices.ContainsFunc(masters, func(m Master) bool { return m.Name == q.Broker })
		l := (*c.links.Load())[q.Broker]
		if !listed && l != nil && l.current.Load() != nil && c.vanishedFor(share{topic, q.Broker}) < keepVanished {
			kept = append(kept, q)
		}
	}
	return kept
}

// vanishedFor returns since when name servers miss a share.
func (c *Client) vanishedFor(s share) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.vanished[s]
	if !ok {
		since = time.Now()
		c.vanished[s] = since
	}
	return time.Since(since)
}

// seen forgets since when the shares that are in the route were missed.
func (c *Client) seen(topic string, route *Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range route.Queues {
		delete(c.vanished, share{topic, q.Broker})
	}
}

// doubt makes keep keep nothing of the topic.
func (c *Client) doubt(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if route := (*c.routes.Load())[topic]; route != nil {
		for _, q := range route.Queues {
			c.vanished[share{topic, q.Broker}] = time.Time{}
		}
	}
}
