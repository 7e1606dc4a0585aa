package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

const (
	relayLimit    = 500 // rows in one claim
	linesAtOnce   = 100 // lines in one claim
	lineLimit     = 100 // rows of one line in one claim, more when there are few lines
	linesLooked   = 500 // lines that one look goes through
	linesKnown    = 10_000
	relayClaims   = 2 // statements of the relay at once: the pool is there for requests
	announceAfter = 50 * time.Millisecond
	maxTrouble    = time.Minute
	busyPause     = 200 * time.Millisecond // as long as a broker lets a message wait before it is busy
)

// relay delivers what no request ends by itself: rows without a half message, and the lines of ordered rows. It works on
// groups, each alone and one claim after the other, so that what keeps one of them keeps no other. Safe for concurrent
// use.
type relay struct {
	*Resolver
	slots chan struct{}

	woken  chan struct{} // something is to be done for a group
	looked chan struct{} // find out what there is
	behind chan struct{} // another replica should look, too

	mu      sync.Mutex
	groups  map[txn.Group]*group
	trouble map[txn.Group]*trouble // by broker and topic
	working sync.WaitGroup
}

// group is the state of one group; the relay's mutex guards it.
type group struct {
	name    txn.Group
	running bool
	due     bool                // it may have something
	keys    map[string]struct{} // lines that are known to have something
	after   string              // the line that the last look ended at
}

// know notes a line that has something, or, when there are very many, that there is something to look for.
func (g *group) know(shardKey string) {
	if len(g.keys) >= linesKnown {
		g.due = true
		return
	}
	g.keys[shardKey] = struct{}{}
}

// trouble keeps the relay from a topic on a broker for a while.
type trouble struct {
	failures int
	until    time.Time
}

func newRelay(r *Resolver) *relay {
	return &relay{
		Resolver: r, slots: make(chan struct{}, relayClaims),
		woken: make(chan struct{}, 1), looked: make(chan struct{}, 1), behind: make(chan struct{}, 1),
		groups: make(map[txn.Group]*group), trouble: make(map[txn.Group]*trouble),
	}
}

// Wake tells of a committed row that waits; see txn.Deliveries.
func (r *Resolver) Wake(w txn.Waiting) {
	r.relay.wake(w)
	signal(r.relay.behind)
}

// WakeAll tells all replicas, whatever they know of the topic; see txn.Deliveries.
func (r *Resolver) WakeAll(w txn.Waiting) {
	r.relay.forget(txn.Group{Broker: w.Broker, Topic: w.Topic})
	r.relay.wake(w)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_ = r.store.Notify(ctx) // else they look by themselves
	}()
}

// Alive is false for a broker that is known not to answer; see txn.Deliveries.
func (r *Resolver) Alive(broker string) bool { return r.evidence.answering(broker, time.Now()) }

func (r *relay) wake(w txn.Waiting) {
	r.mu.Lock()
	if w.Ordered {
		r.group(txn.Group{Topic: w.Topic}).know(w.ShardKey)
	} else {
		r.group(txn.Group{Broker: w.Broker, Topic: w.Topic}).due = true
	}
	r.mu.Unlock()
	signal(r.woken)
}

// look makes the relay find out what is pending.
func (r *relay) look() { signal(r.looked) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// group returns the group; the caller holds the mutex.
func (r *relay) group(name txn.Group) *group {
	g, ok := r.groups[name]
	if !ok {
		g = &group{name: name, keys: make(map[string]struct{})}
		r.groups[name] = g
	}
	return g
}

// run works until ctx is done; what is being delivered then is finished.
func (r *relay) run(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	defer r.working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
		case <-r.looked:
			r.find(ctx)
		case <-ticker.C:
			r.find(ctx)
		}
		r.start(ctx)
	}
}

// find asks the database which groups have something.
func (r *relay) find(ctx context.Context) {
	release := r.slot()
	found, err := r.store.Groups(ctx)
	release()
	if err != nil {
		r.log.DebugContext(ctx, "looking for what the relay has to do", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range found {
		r.group(name).due = true
	}
}

// rest lets the group wait for the next look.
func (r *relay) rest(g *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.due = false
	clear(g.keys)
}

// start begins work on the groups that have something and that nothing keeps from working.
func (r *relay) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		if !g.running && (g.due || len(g.keys) > 0) && (g.name.Broker == "" || r.usable(g.name)) {
			g.running = true
			r.working.Go(func() { r.work(ctx, g) })
		}
	}
}

func (r *relay) work(ctx context.Context, g *group) {
	for ctx.Err() == nil && r.step(ctx, g) {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g.running = false
	if (g.due || len(g.keys) > 0) && ctx.Err() == nil {
		signal(r.woken)
	} else if !g.due && len(g.keys) == 0 {
		delete(r.groups, g.name)
	}
}

// step delivers one claim, and says whether to go on at once.
func (r *relay) step(ctx context.Context, g *group) bool {
	if g.name.Broker != "" {
		return r.outboxStep(ctx, g)
	}
	return r.linesStep(ctx, g)
}

// outboxStep delivers what has waited longest in a group without lines.
func (r *relay) outboxStep(ctx context.Context, g *group) bool {
	r.mu.Lock()
	g.due = false
	usable := r.usable(g.name)
	r.mu.Unlock()
	if !usable {
		return false
	}
	release := r.slot()
	claims, err := r.store.ClaimOutbox(ctx, g.name.Broker, g.name.Topic, relayLimit)
	release()
	if err != nil {
		r.log.DebugContext(ctx, "claiming outbox rows", "error", err)
		return false
	}
	r.send(context.WithoutCancel(ctx), claims)
	return len(claims) > 0
}

// slot waits for one of the relay's connections.
func (r *relay) slot() (release func()) {
	r.slots <- struct{}{}
	return func() { <-r.slots }
}

// usable says whether the broker answers and stores what it is sent, and nothing is known against the topic; the caller holds the mutex.
func (r *relay) usable(name txn.Group) bool {
	now := time.Now()
	t := r.trouble[name]
	return r.evidence.answering(name.Broker, now) && r.broker.Stores(name.Broker) && (t == nil || now.After(t.until))
}

// brokers returns those that can be used for the topic.
func (r *relay) brokers(topic string) []string {
	all := r.broker.Brokers()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(all, func(broker string) bool { return !r.usable(txn.Group{Broker: broker, Topic: topic}) })
}

// keep leaves the topic on the broker alone for a while, longer each time, unless it was only busy.
func (r *relay) keep(name txn.Group, busy bool) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.trouble[name]
	if t == nil {
		t = &trouble{}
		r.trouble[name] = t
	}
	switch now := time.Now(); {
	case !now.After(t.until): // another queue has told already
	case busy:
		t.until = now.Add(busyPause)
	default:
		t.failures++
		t.until = now.Add(min(firstBackoff<<min(t.failures-1, 10), maxTrouble))
	}
	return time.Until(t.until).Round(time.Millisecond)
}

// forget ends the trouble with a topic.
func (r *relay) forget(name txn.Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trouble, name)
}

// announce tells other replicas when this one has not delivered at once what came: at most twenty times a second, and not
// at all when it keeps up, or cannot do anything. It is no part of a business transaction, where a NOTIFY would make all COMMITs wait for
// one another.
func (r *relay) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.behind:
		}
		pause.For(ctx, announceAfter)
		if r.idle() {
			continue
		}
		notify, cancel := context.WithTimeout(ctx, callTimeout)
		if err := r.store.Notify(notify); err != nil {
			r.log.DebugContext(ctx, "telling other replicas of pending deliveries; they look by themselves", "error", err)
		}
		cancel()
	}
}

func (r *relay) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		if g.running {
			return false
		}
	}
	return true
}
