package remoting

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Limits of discovery.
const (
	retryDiscovery = time.Second            // after no name server answered
	minRefreshGap  = 100 * time.Millisecond // between refreshes on demand
	forgetBroker   = 10 * time.Minute
)

// refreshSoon asks for a refresh of brokers and routes, without waiting for it.
func (c *Client) refreshSoon() {
	pause.Wake(c.refresh)
}

// refreshLoop refreshes the list of brokers, and the routes of all topics that were ever asked for.
func (c *Client) refreshLoop(first chan<- struct{}) {
	for {
		wait := c.cfg.RefreshEvery*9/10 + rand.N(c.cfg.RefreshEvery/5+1)
		if err := c.refreshAll(); err != nil {
			wait = min(wait, retryDiscovery)
			c.log.DebugContext(c.ctx, "refreshing brokers and routes", "err", err)
		}
		if first != nil {
			close(first)
			first = nil
		}
		pause.For(c.ctx, minRefreshGap)
		select {
		case <-c.ctx.Done():
			return
		case <-c.refresh:
		case <-time.After(wait):
		}
	}
}

func (c *Client) refreshAll() error {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ReplyTimeout)
	defer cancel()
	masters, err := c.names.fetchMasters(ctx)
	if err != nil {
		return err
	}
	c.syncLinks(masters)
	for topic := range *c.routes.Load() {
		if _, err := c.fetchRoute(topic); err != nil && !IsCode(err, CodeTopicNotExist) {
			return err
		}
	}
	return nil
}

// Route returns where a topic's queues are. A topic that was asked for before is in memory and refreshed in the
// background; another one comes from a name server. For a topic that no name server knows, the error is a BrokerError
// with CodeTopicNotExist. The result is shared, so callers must not change it.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	if r := (*c.routes.Load())[topic]; r != nil {
		return r, nil
	}
	return c.RefreshRoute(ctx, topic)
}

// KnownRoute returns the route in memory, or nil.
func (c *Client) KnownRoute(topic string) *Route { return (*c.routes.Load())[topic] }

// Masters asks a name server for the names of all brokers that have a master.
func (c *Client) Masters(ctx context.Context) ([]string, error) {
	masters, err := c.names.fetchMasters(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(masters))
	for i, m := range masters {
		names[i] = m.Name
	}
	return names, nil
}

// RefreshRoute asks a name server now, even if the route is in memory.
func (c *Client) RefreshRoute(ctx context.Context, topic string) (*Route, error) {
	result := c.fetching.DoChan(topic, func() (any, error) { return c.fetchRoute(topic) })
	select {
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Route), nil
	case <-ctx.Done():
		return nil, notSent("route", "name servers", context.Cause(ctx))
	}
}

// distrust reacts to a broker that refuses a topic or a queue which it should have. The route is fetched again. If the
// broker does not know the topic, queues that name servers do not list are forgotten as well.
func (c *Client) distrust(topic string, err error) {
	switch {
	case IsCode(err, CodeTopicNotExist):
		c.doubt(topic)
	case IsCode(err, CodeNoPermission), IsCode(err, CodeInvalidParameter), IsCode(err, CodeNotLeader):
	default:
		return
	}
	c.refreshSoon()
}

// fetchRoute asks for a route and stores it.
func (c *Client) fetchRoute(topic string) (*Route, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ReplyTimeout)
	defer cancel()
	route, err := c.askRoute(ctx, topic)
	if IsCode(err, CodeTopicNotExist) {
		c.forgetRoute(topic)
	}
	if err != nil {
		return nil, err
	}
	for _, q := range route.Queues {
		c.ensureLink(Master{Name: q.Broker, Addr: q.Addr})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	routes := maps.Clone(*c.routes.Load())
	routes[topic] = &route
	c.routes.Store(&routes)
	return &route, nil
}

func (c *Client) forgetRoute(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.vanished, func(s share, _ time.Time) bool { return s.topic == topic })
	routes := maps.Clone(*c.routes.Load())
	delete(routes, topic)
	c.routes.Store(&routes)
}

// syncLinks connects to new masters, and drops those that have been neither listed nor connected for a long time. An
// empty list (of a name server that has just started) drops none.
func (c *Client) syncLinks(masters []Master) {
	for _, m := range masters {
		c.ensureLink(m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range *c.links.Load() {
		if l.unlistedFor() > forgetBroker && l.current.Load() == nil {
			c.replaceLink(name, nil)
		}
	}
}

// ensureLink makes sure that there is a link to the master, at its address.
func (c *Client) ensureLink(m Master) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := (*c.links.Load())[m.Name]; l != nil && l.addr == m.Addr {
		l.markListed()
		return
	}
	if c.closed {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	l := &link{
		name: m.Name, addr: m.Addr, opts: c.opts, heartbeat: c.heartbeat, interval: c.cfg.HeartbeatEvery,
		patience: min(c.cfg.HeartbeatEvery, c.cfg.ReplyTimeout), log: c.log,
		cancel: cancel, done: make(chan struct{}), settled: make(chan struct{}), listed: time.Now(),
	}
	c.replaceLink(m.Name, l)
	go l.run(ctx)
}

// replaceLink is called with mu held. It stops the old link in the background.
func (c *Client) replaceLink(name string, l *link) {
	links := maps.Clone(*c.links.Load())
	if old := links[name]; old != nil {
		c.loops.Go(old.stop)
	}
	delete(links, name)
	if l != nil {
		links[name] = l
	}
	c.links.Store(&links)
}
