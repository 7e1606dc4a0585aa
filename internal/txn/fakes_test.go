package txn

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// world is what a Service is made of in these tests: each port does what its function says, or the ordinary when it is nil,
// and notes what it was asked for.
type world struct {
	t       *testing.T
	service *Service
	kinds   []*Kind
	timing  Timing

	route     func(ctx context.Context) (Route, error)
	known     func() (Route, error)
	readable  func() bool
	sendHalf  func(ctx context.Context, m Message) (Half, error)
	end       func(ctx context.Context, d Decision, writeBefore time.Time) error
	run       func(a *Attempt) Outcome
	renew     func(ctx context.Context, l Lease) (Lease, bool, error)
	awaitHead func(ctx context.Context) bool
	find      func(ctx context.Context, id string) (*Transaction, error)
	silent    bool
	full      bool // the outbox's memory

	mu        sync.Mutex
	log       []string
	open      map[time.Time]string // the attempts under way, and what they left behind: "" as long as they are
	rows      map[string]*Transaction
	undecided map[string]*Attempt
	keys      int
}

var inQueue = Queue{Broker: "broker-a", ID: 1}

// newWorld has the kinds plain, ordered, fallback and outbox, each with a timeout of five seconds.
func newWorld(t *testing.T) *world {
	w := &world{t: t, timing: DefaultTiming(), rows: make(map[string]*Transaction), undecided: make(map[string]*Attempt), open: make(map[time.Time]string)}
	for name, change := range map[string]func(*Kind){
		"plain": func(*Kind) {}, "ordered": func(k *Kind) { k.Ordered = true },
		"fallback": func(k *Kind) { k.Fallback = FallbackOutbox }, "outbox": func(k *Kind) { k.Via = ViaOutbox },
	} {
		kind := &Kind{Name: name, Destination: Destination{Topic: "orders"}, Timeout: 5 * time.Second}
		change(kind)
		w.kinds = append(w.kinds, kind)
	}
	config := Config{MaxInFlight: 100, Timing: w.timing, Reached: func(point string) { w.note("reached " + point) }}
	w.service = NewService(config, w.kinds, w, w, w, handover{w}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	return w
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, what)
}

// notes returns what was noted, and begins anew.
func (w *world) notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.log = nil }()
	return w.log
}

func (w *world) wantNotes(want ...string) {
	w.t.Helper()
	if got := w.notes(); !slices.Equal(got, want) {
		w.t.Errorf("got %q, want %q", got, want)
	}
}

func (w *world) submit(kind, id string) (*Transaction, error) {
	return w.service.Submit(context.Background(), requestOf(kind, id))
}

func requestOf(kind, id string) Request {
	return Request{Kind: kind, ID: id, ShardKey: "acme", Payload: json.RawMessage(`{"n":1}`)}
}

func (w *world) budget(kind string) Budget { return w.service.kinds[kind].budget }

// The ports.

func (w *world) Route(ctx context.Context, _ Destination, _ SelectorInput) (Route, error) {
	if w.route != nil {
		return w.route(ctx)
	}
	return Route{Queue: inQueue}, nil
}

func (w *world) RouteKnown(context.Context, Destination, SelectorInput) (Route, error) {
	if w.known != nil {
		return w.known()
	}
	return Route{Queue: inQueue}, nil
}

func (w *world) Refresh(context.Context, string) { w.note("refresh") }

func (w *world) Readable(string, Queue) bool { return w.readable == nil || w.readable() }

func (w *world) NewUniqKey() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys++
	return fmt.Sprintf("key-%d", w.keys)
}

func (w *world) SendHalf(ctx context.Context, m Message) (Half, error) {
	w.note("half " + m.UniqKey)
	if w.sendHalf != nil {
		return w.sendHalf(ctx, m)
	}
	return Half{UniqKey: m.UniqKey, Broker: m.Queue.Broker}, nil
}

func (w *world) End(ctx context.Context, h Half, d Decision, writeBefore time.Time) error {
	w.note(string(d) + " " + h.UniqKey)
	if w.end != nil {
		return w.end(ctx, d, writeBefore)
	}
	return nil
}

func (w *world) Find(ctx context.Context, id string) (*Transaction, error) {
	if w.find != nil {
		return w.find(ctx, id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.rows[id]; ok {
		found := *t
		return &found, nil
	}
	return nil, ErrNotFound
}

func (w *world) Run(ctx context.Context, a *Attempt) Outcome {
	if _, bounded := ctx.Deadline(); bounded || ctx.Done() != nil {
		w.t.Error("the local transaction can be cancelled, and with it its COMMIT")
	}
	if w.run != nil {
		return w.run(a)
	}
	return w.commit(a)
}

// commit writes the attempt's row.
func (w *world) commit(a *Attempt) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &Transaction{
		ID: a.Request.ID, Kind: a.Kind.Name, State: StateCommitted, Delivery: DeliveryPending, ShardKey: a.Request.ShardKey, Topic: a.Kind.Topic,
		Route: a.Route, MessageID: a.Half.UniqKey, Fingerprint: a.Fingerprint, Ordered: a.Kind.Ordered, CreatedAt: a.CreatedAt,
	}
	w.rows[t.ID] = t
	answer := *t
	return Outcome{Kind: OutcomeCommitted, Transaction: &answer, Lease: Lease{ID: t.ID, Epoch: 1, WriteBefore: time.Now().Add(w.timing.WriteWithin)}, Head: true, Tracked: a.Relay}
}

func (w *world) Begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	began := time.Now().Add(time.Duration(len(w.open)))
	w.open[began] = ""
	return began
}

func (w *world) Settle(began time.Time) { w.leave(began, "settled") }

func (w *world) HandOver(began time.Time) { w.leave(began, "handed over") }

// leave notes how an attempt ended; the first word counts.
func (w *world) leave(began time.Time, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[began] == "" {
		w.open[began] = how
	}
}

func (w *world) Renew(ctx context.Context, l Lease) (Lease, bool, error) {
	w.note("renew")
	if w.renew != nil {
		return w.renew(ctx, l)
	}
	l.WriteBefore = time.Now().Add(w.timing.WriteWithin)
	return l, true, nil
}

func (w *world) Release(context.Context, Lease) error { w.note("release"); return nil }

func (w *world) AwaitHead(ctx context.Context, _ *Transaction) bool {
	return w.awaitHead == nil || w.awaitHead(ctx)
}

func (w *world) MarkDelivered(id string, at time.Time, _ bool) {
	w.note("mark")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows[id].Delivery, w.rows[id].DeliveredAt = DeliveryDelivered, at
}

func (w *world) Redeliver(ctx context.Context, id string) (*Transaction, error) {
	return w.Find(ctx, id)
}

func (w *world) Add(a *Attempt) {
	w.note("undecided")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undecided[a.Request.ID] = a
}

// settle forgets the undecided attempt with the id, as the resolver does when the row tells the outcome.
func (w *world) settle(id string) {
	w.mu.Lock()
	a := w.undecided[id]
	delete(w.undecided, id)
	w.mu.Unlock()
	a.Decided()
}

// handover is the world as Deliveries, whose Find is another one than the Store's.
type handover struct{ *world }

func (h handover) Find(id string) *Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.undecided[id]
}

func (w *world) Alive(string) bool { return !w.silent }

func (w *world) Takes(Waiting) bool { return !w.silent }

func (w *world) Relay(c Claim) bool {
	w.note("relay " + string(c.Message.Body))
	return !w.full
}

func (w *world) Wake(Waiting) { w.note("wake") }

func (w *world) WakeAll(Waiting) { w.note("wake all") }
