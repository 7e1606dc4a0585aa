package model

import (
	"context"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/delivery"
	"github.com/txsvc/txsvc/internal/delivery/claimed"
	"github.com/txsvc/txsvc/internal/delivery/evidence"
	"github.com/txsvc/txsvc/internal/delivery/lines"
	"github.com/txsvc/txsvc/internal/delivery/outbox"
	"github.com/txsvc/txsvc/internal/tools/model/broker"
	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Store is what the flow and the deliveries need of a database.
type Store interface {
	txn.Store
	delivery.Decisions
	delivery.Gone
	delivery.HalfClaims
	outbox.Claims
	lines.Claims
	delivery.Waiting
	delivery.Pending
	delivery.Rows
}

// Broker is what they need of the brokers.
type Broker interface {
	txn.Broker
	delivery.Broker
	evidence.Index
	claimed.Index
}

// parts is what a process is made of; evidence is nil where it is to be gathered.
type parts struct {
	store    Store
	broker   Broker
	evidence claimed.Evidence
}

// process is one replica of the service.
type process struct {
	life       *world.Life
	service    *txn.Service
	deliveries *delivery.Service
	stop       context.CancelFunc
}

// metrics are those of all processes: nobody looks at them.
var metrics = sync.OnceValue(func() *txn.Metrics { return txn.NewMetrics(prometheus.NewRegistry()) })

// unregistered is a registry that forgets.
type unregistered struct{ prometheus.Registerer }

func (unregistered) MustRegister(...prometheus.Collector) {}

// start makes a process, and lets it work.
func (m *model) start() *process {
	m.started++
	number := m.started
	life := world.NewLife(m.w, "p"+strconv.Itoa(number))
	client := m.cluster.Connect(life, number)
	prefix := txn.ProducerOf(client.NewUniqKey())
	rows := m.database.Connect(life)
	p := &process{life: life}
	with := parts{store: rows, broker: client}
	if m.mutant != nil {
		with = m.mutant(m, rows, client)
	}
	routing := &routes{w: m.w, life: life, cluster: m.cluster, client: client}
	log := slog.New(slog.DiscardHandler)
	if m.w.Tracing() {
		log = slog.New(&traced{w: m.w, who: life.Name})
	}
	p.deliveries = delivery.New(delivery.Ports{
		Decisions: with.store, Begun: with.store, Gone: with.store, Halves: with.store, Outbox: with.store, Lines: with.store, Waiting: with.store, Pending: with.store, Rows: with.store,
		Broker: with.broker, Probes: with.broker, Copies: with.broker, Queues: routing, Evidence: with.evidence,
	}, m.timing, metrics(), unregistered{}, log)
	config := txn.Config{MaxInFlight: 1024, Timing: m.timing}
	p.service = txn.NewService(config, m.kinds, routing, with.broker, with.store, p.deliveries, metrics(), log)
	client.Checkback = func(message txn.Message, h txn.Half) { p.deliveries.Checkback(context.Background(), message, h) }
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { _ = p.deliveries.Run(ctx) }()
	go func() {
		_ = rows.Register(ctx, prefix) // KeepTrack tries again
		rows.KeepTrack(ctx)
	}()
	m.w.Trace(life.Name, "starts")
	return p
}

// kill ends the process as SIGKILL does.
func (p *process) kill() {
	p.life.Kill()
	p.stop()
}

// traced writes log records into the trace.
type traced struct {
	w   *world.World
	who string
}

// Enabled implements slog.Handler.
func (*traced) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (t *traced) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	t.w.Trace(t.who, "logs: %s", text)
	return nil
}

// WithAttrs implements slog.Handler.
func (t *traced) WithAttrs([]slog.Attr) slog.Handler { return t }

// WithGroup implements slog.Handler.
func (t *traced) WithGroup(string) slog.Handler { return t }

// routes is one process's view of the topic's queues, which follows the brokers' by a while.
type routes struct {
	w       *world.World
	life    *world.Life
	cluster *broker.Cluster
	client  *broker.Client

	mu                 sync.Mutex
	readable, writable []txn.Queue
	at                 time.Time
}

// refreshed is how often a process asks name servers by itself.
const refreshed = 2 * time.Second

func (r *routes) queues() (readable, writable []txn.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readable == nil || time.Since(r.at) > refreshed {
		r.readable, r.writable = r.cluster.Queues()
		r.at = time.Now()
	}
	return r.readable, r.writable
}

func (r *routes) refresh(ctx context.Context, what, about string) error {
	if !world.Sleep(ctx, r.w.Roll(r.life.Name, what, about).Within(5*time.Millisecond)) {
		return ctx.Err()
	}
	r.life.Pass(what + about)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readable, r.writable = r.cluster.Queues()
	r.at = time.Now()
	return nil
}

// isReadable says, from memory, that consumers read the queue.
func (r *routes) isReadable(q txn.Queue) bool {
	readable, _ := r.queues()
	return slices.Contains(readable, q)
}

// Route implements txn.Router.
func (r *routes) Route(_ context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	_, writable := r.queues()
	return d.Selector.Select(writable, in)
}

// RouteKnown implements txn.Routing.
func (r *routes) RouteKnown(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	return r.Route(ctx, d, in)
}

// Refresh implements txn.QueueWatch.
func (r *routes) Refresh(ctx context.Context, topic string) { _ = r.refresh(ctx, "refresh", topic) }

// Readable implements txn.QueueWatch.
func (r *routes) Readable(_ string, q txn.Queue) bool { return r.isReadable(q) }

// Unread implements delivery.Queues.
func (r *routes) Unread(_ string, q txn.Queue) bool { return !r.isReadable(q) }

// Removed implements delivery.Queues.
func (r *routes) Removed(ctx context.Context, _ string, q txn.Queue) (bool, error) {
	if err := r.refresh(ctx, "removed", q.String()); err != nil {
		return false, err
	}
	return !r.isReadable(q), nil
}

// Choose implements delivery.Queues.
func (r *routes) Choose(_ context.Context, m txn.Message) (txn.Route, error) {
	_, writable := r.queues()
	return byKey{}.Select(writable, txn.SelectorInput{ShardKey: m.ShardKey})
}

// NewUniqKey implements delivery.Queues.
func (r *routes) NewUniqKey() string { return r.client.NewUniqKey() }

// byKey is a selector.
type byKey struct{}

// Name implements txn.Selector.
func (byKey) Name() string { return "key" }

// Select implements txn.Selector.
func (byKey) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(in.ShardKey))
	return txn.Route{Queue: queues[int(h.Sum32()%uint32(len(queues)))], Selector: "key"}, nil
}
