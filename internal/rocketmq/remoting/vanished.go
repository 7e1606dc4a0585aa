package remoting

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// trustVanished is how long the client still believes in the queues of a connected broker when name servers list
// neither the broker nor the topic. A name server that has just started knows only the brokers that have registered
// since; they do so every 30 s, at most every 60 s.
const trustVanished = 2 * time.Minute

// share is one broker's share of a topic.
type share struct{ topic, broker string }

// askRoute asks for a route, and adds queues that a name server that has just started cannot know. A broker registers
// with all its topics. So when its queues are missing and the name server lists the broker, the topic was deleted
// there. When the name server does not list the broker, either the broker is gone, and then it is not connected; or it
// has not registered yet.
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
	kept := c.stillThere(topic, missing(known, &route), masters)
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

// missing returns the queues of the known route whose brokers are not in the new one.
func missing(known, route *Route) []QueueData {
	var list []QueueData
	for _, q := range known.Queues {
		if !slices.ContainsFunc(route.Queues, func(other QueueData) bool { return other.Broker == q.Broker }) {
			list = append(list, q)
		}
	}
	return list
}

// stillThere returns the vanished shares that the client still believes in.
func (c *Client) stillThere(topic string, vanished []QueueData, masters []Master) []QueueData {
	var kept []QueueData
	for _, q := range vanished {
		listed := slices.ContainsFunc(masters, func(m Master) bool { return m.Name == q.Broker })
		l := (*c.links.Load())[q.Broker]
		if !listed && l != nil && l.current.Load() != nil && c.vanishedFor(share{topic, q.Broker}) < trustVanished {
			kept = append(kept, q)
		}
	}
	return kept
}

// vanishedFor returns for how long name servers have not listed a share.
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

// seen resets that time for the shares in the route.
func (c *Client) seen(topic string, route *Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range route.Queues {
		delete(c.vanished, share{topic, q.Broker})
	}
}

// doubt makes stillThere return nothing for the topic.
func (c *Client) doubt(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if route := (*c.routes.Load())[topic]; route != nil {
		for _, q := range route.Queues {
			c.vanished[share{topic, q.Broker}] = time.Time{}
		}
	}
}
