package broker

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Config is how the brokers of a cluster are set up.
type Config struct {
	Timing    txn.Timing // how long a frame may be on its way, and in a broker's queue of requests
	Brokers   []string
	Queues    int           // of the topic on each broker
	CheckFrom time.Duration // transactionTimeOut
	CheckEach time.Duration // transactionCheckInterval
	CheckMax  int           // transactionCheckMax
	OpBatch   time.Duration // transactionOpBatchInterval: how long the scanner does not see that a half message was ended
	IndexLag  time.Duration // how far the index follows the log at most
	NoIndex   bool          // messageIndexEnable=false
	Faults    float64       // the share of frames that something happens to
}

// Copy is a message that consumers see.
type Copy struct {
	UniqKey, TxID string
	Queue         txn.Queue
	Removed       bool // it was put into a queue that the topic does not have any more
	place
}

// place is where something stands in a broker's log, and from when on the queue and the index know it.
type place struct {
	offset          int64
	stored          time.Time
	queued, indexed time.Time
}

// Watch is told what happens, at the moment at which it does.
type Watch interface {
	Visible(c Copy)
	Ended(h txn.Half, m txn.Message, d txn.Decision)
}

// Cluster is the brokers. It is safe for concurrent use.
type Cluster struct {
	w      *world.World
	config Config
	watch  Watch

	mu      sync.Mutex
	brokers map[string]*broker
	clients []*Client
	closed  map[txn.Queue]bool      // not to be written
	removed map[txn.Queue]time.Time // from then on not to be read either
}

type broker struct {
	name    string
	down    bool
	cut     chan struct{} // closed when it goes down: replies that are awaited will not come
	stopped time.Time     // until then it reads nothing
	behind  time.Duration // its index, beyond what is usual
	hole    int64         // the index knows nothing that stands before in the log
	offset  int64
	halves  []*half // the half queue
	copies  []*Copy
	last    place // of the log
}

// half is one entry of the half queue: a half message, or a copy of one.
type half struct {
	message txn.Message
	place
	first  int64 // offset of the message as it was stored first
	born   time.Time
	sent   time.Time // on the clock of who sent it, in milliseconds
	checks int
	done   bool      // ended, given up, or followed by a copy
	doneAt time.Time // from then on the scanner knows
	gone   bool      // the broker has lost it
}

// New returns a cluster and lets its brokers ask back until the world has ended.
func New(w *world.World, config Config, watch Watch) *Cluster {
	c := &Cluster{w: w, config: config, watch: watch, brokers: make(map[string]*broker), closed: make(map[txn.Queue]bool), removed: make(map[txn.Queue]time.Time)}
	for _, name := range config.Brokers {
		c.brokers[name] = &broker{name: name, cut: make(chan struct{})}
	}
	for _, name := range config.Brokers {
		go c.scan(name)
	}
	return c
}

// append writes to the log; the caller holds the mutex.
func (c *Cluster) append(b *broker) place {
	now := time.Now()
	b.offset += 100
	p := place{offset: b.offset, stored: now}
	lag := c.w.Roll(b.name, "lag", "").Within(c.config.IndexLag)
	if !c.w.IsCalm() {
		lag += b.behind
	}
	p.queued = later(now.Add(lag/2), b.last.queued)
	p.indexed = later(now.Add(lag), b.last.indexed)
	b.last = p
	return p
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *Cluster) storeHalf(b *broker, m txn.Message, sent time.Time) txn.Half {
	p := c.append(b)
	b.halves = append(b.halves, &half{message: m, place: p, first: p.offset, born: p.stored, sent: sent})
	return txn.Half{UniqKey: m.UniqKey, Broker: b.name, CommitLogOffset: p.offset, QueueOffset: int64(len(b.halves) - 1), TransactionID: m.UniqKey}
}

// end executes END_TRANSACTION, as often as it is asked to. It is false where the half message is not there.
func (c *Cluster) end(b *broker, h txn.Half, d txn.Decision) bool {
	if h.QueueOffset < 0 || h.QueueOffset >= int64(len(b.halves)) {
		return false
	}
	entry := b.halves[h.QueueOffset]
	if entry.gone || entry.offset != h.CommitLogOffset {
		return false
	}
	if entry.message.TxID != "" {
		c.watch.Ended(h, entry.message, d)
	}
	if d == txn.DecisionCommit {
		c.show(b, entry.message)
	}
	if !entry.done {
		entry.done, entry.doneAt = true, time.Now().Add(c.w.Roll(b.name, "op", h.UniqKey).Within(c.config.OpBatch))
	}
	return true
}

// show makes a message visible.
func (c *Cluster) show(b *broker, m txn.Message) {
	shown := &Copy{UniqKey: m.UniqKey, TxID: m.TxID, Queue: m.Queue, Removed: c.isUnread(m.Queue), place: c.append(b)}
	b.copies = append(b.copies, shown)
	c.watch.Visible(*shown)
}

// scan asks back, and gives up what was asked about too often.
func (c *Cluster) scan(name string) {
	b := c.brokers[name]
	for time.Sleep(c.w.Roll(name, "scan", "").Within(c.config.CheckEach)); !c.w.Ended(); time.Sleep(c.config.CheckEach) {
		c.mu.Lock()
		now := time.Now()
		if !b.down && !b.stopped.After(now) {
			for _, entry := range slices.Clone(b.halves) {
				c.check(b, entry, now)
			}
		}
		c.mu.Unlock()
	}
}

func (c *Cluster) check(b *broker, entry *half, now time.Time) {
	if entry.done && !entry.doneAt.After(now) || entry.gone || now.Sub(entry.born) < c.config.CheckFrom {
		return
	}
	entry.done, entry.doneAt = true, now
	if entry.checks >= c.config.CheckMax {
		c.w.Trace(b.name, "gives half message %s of %s up", entry.message.UniqKey, entry.message.TxID)
		return
	}
	p := c.append(b)
	b.halves = append(b.halves, &half{message: entry.message, place: p, first: entry.first, born: entry.born, sent: entry.sent, checks: entry.checks + 1})
	h := txn.Half{
		UniqKey: entry.message.UniqKey, Broker: b.name, CommitLogOffset: p.offset, QueueOffset: int64(len(b.halves) - 1),
		TransactionID: entry.message.UniqKey, FromCheck: true, StoredAt: entry.sent,
	}
	roll := c.w.Roll(b.name, "ask", entry.message.UniqKey)
	live := slices.DeleteFunc(slices.Clone(c.clients), func(client *Client) bool { return client.life.IsDead() })
	if len(live) == 0 || c.faulty(roll) {
		return
	}
	client := live[roll.Below(len(live))]
	c.w.After(roll.Within(5*time.Millisecond), func() {
		if client.life.Pass(h.UniqKey) && client.Checkback != nil {
			c.w.Trace(client.life.Name, "is asked about half message %s of %s", h.UniqKey, entry.message.TxID)
			client.Checkback(entry.message, h)
		}
	})
}

func (c *Cluster) faulty(roll *world.Roll) bool { return roll.Chance(c.config.Faults) && !c.w.IsCalm() }

// isIndexed says that the broker's index knows what stands there.
func (c *Cluster) isIndexed(b *broker, p place) bool {
	return !c.config.NoIndex && p.offset >= b.hole && !p.indexed.After(time.Now())
}

// Undecided counts the half messages of transactions that brokers still ask about.
func (c *Cluster) Undecided() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, now := 0, time.Now()
	for _, b := range c.brokers {
		for _, entry := range b.halves {
			if (!entry.done || entry.doneAt.After(now)) && !entry.gone && entry.message.TxID != "" {
				n++
			}
		}
	}
	return n
}

// Stop lets a broker do nothing for so long. It reads what was sent meanwhile when it wakes.
func (c *Cluster) Stop(name string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.brokers[name]
	b.stopped = later(time.Now().Add(d), b.stopped)
}

// FallBehind lets the index follow later.
func (c *Cluster) FallBehind(name string, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[name].behind = by
}

// Crash kills a broker. What it has answered stays. What it had not written into its operation queue is lost, and so is the
// index file that it was writing: it indexes anew from where its recovery begins.
// It is false when it was down.
func (c *Cluster) Crash(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, now := c.brokers[name], time.Now()
	if b.down {
		return false
	}
	b.down = true
	close(b.cut)
	for _, entry := range b.halves {
		if entry.done && entry.doneAt.After(now) {
			entry.done = false
		}
	}
	b.hole = int64(c.w.Roll(name, "hole", "").Below(int(b.offset) + 200))
	return true
}

// LoseHalves lets a broker lose its half messages for good.
func (c *Cluster) LoseHalves(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range c.brokers[name].halves {
		entry.gone = true
	}
}

// Restart starts a broker that has crashed.
func (c *Cluster) Restart(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.brokers[name]
	b.down, b.cut, b.stopped = false, make(chan struct{}), time.Time{}
	recovered := time.Now().Add(c.w.Roll(name, "recovery", "").Within(2 * time.Second))
	b.last.queued, b.last.indexed = later(recovered, b.last.queued), later(recovered, b.last.indexed)
	for _, shown := range b.copies {
		if shown.offset >= b.hole {
			shown.indexed = later(recovered, shown.indexed)
		}
	}
	c.w.Trace(name, "starts again")
}

// Close lets the queue be written no more: the first step of its removal.
func (c *Cluster) Close(q txn.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed[q] = true
}

// Remove takes the queue from its topic: consumers do not read it any more.
func (c *Cluster) Remove(q txn.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed[q] = time.Now()
}

// Unnoticed is how long after a queue's removal messages may still be put there, unread, before anybody can have noticed; see
// the assumptions in docs/guarantees.md.
const Unnoticed = 5 * time.Second

// isUnread says that nobody finds what is put into the queue, and that this could be known.
func (c *Cluster) isUnread(q txn.Queue) bool {
	at, ok := c.removed[q]
	return ok && time.Since(at) > Unnoticed
}

// Queues returns the topic's queues that are read, and those of them that are written, sorted.
func (c *Cluster) Queues() (readable, writable []txn.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.config.Brokers {
		for id := range c.config.Queues {
			q := txn.Queue{Broker: name, ID: id}
			if _, removed := c.removed[q]; removed {
				continue
			}
			readable = append(readable, q)
			if !c.closed[q] {
				writable = append(writable, q)
			}
		}
	}
	return readable, writable
}

// Connect returns the connection of a new process; its message ids begin with the number.
func (c *Cluster) Connect(life *world.Life, number int) *Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := &Client{cluster: c, w: c.w, life: life, prefix: pad(strconv.Itoa(number), 20)}
	c.clients = append(c.clients, client)
	return client
}

func pad(s string, length int) string {
	for len(s) < length {
		s = "0" + s
	}
	return s
}
