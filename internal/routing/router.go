package routing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/txsvc/txsvc/internal/txn"
)

// Broker gives the router what it needs from RocketMQ.
type Broker interface {
	// Queues returns the topic's live queues, sorted; the slice stays the same as long as the queues do. Once the topic
	// is known, the answer comes from memory, which is refreshed in the background. The error is a *txn.SendError,
	// with txn.ReasonNoQueue when the topic is known to have no queue.
	Queues(ctx context.Context, topic string) ([]txn.Queue, error)
	// JavaQueues returns the list from which producers in Java choose, whether its queues can be used or not; the slice
	// stays the same as long as the queues do. The error is a *txn.SendError.
	JavaQueues(ctx context.Context, topic string) (txn.JavaQueues, error)
	// Topic returns what name servers know of the topic's brokers. The error is as that of Queues.
	Topic(ctx context.Context, topic string) (txn.TopicLayout, error)
	// Refresh asks a name server now.
	Refresh(ctx context.Context, topic string) error
	// Readable is as in txn.QueueWatch.
	Readable(topic string, q txn.Queue) bool
	// Unread, Removed and NewUniqKey are as in delivery.Queues.
	Unread(topic string, q txn.Queue) bool
	Removed(ctx context.Context, topic string, q txn.Queue) (bool, error)
	NewUniqKey() string
}

// Store has the accepted lists.
type Store interface {
	// AcceptedQueues returns the lists of those of the topics that have one.
	AcceptedQueues(ctx context.Context, topics []string) (map[string]txn.AcceptedQueues, error)
	// AcceptFirst records a list for a topic that has none, and a selector of its ordered messages if none is recorded
	// and this one is not empty. It returns what is recorded afterwards.
	AcceptFirst(ctx context.Context, topic string, queues []txn.Queue, selector string) (txn.AcceptedQueues, error)
}

// watchEvery is how often the live lists are compared.
const watchEvery = time.Second

// Config lists the topics, and the destinations of all kinds.
type Config struct {
	Topics map[string]txn.Destination // of the configuration, by name
	Kinds  []*txn.Kind
	Timing txn.Timing
}

// Router implements txn.Routing. It is safe for concurrent use.
type Router struct {
	broker Broker
	store  Store
	log    *slog.Logger
	views  map[string]*view // by topic; never changed
	kinds  map[string]*txn.Kind
	config Config
	asking singleflight.Group // for accepted lists, by topic

	changes *prometheus.CounterVec
	missing *prometheus.GaugeVec
}

// New returns a Router and registers its metrics. The Router notices changes only while Run is running.
func New(config Config, broker Broker, store Store, reg prometheus.Registerer, log *slog.Logger) *Router {
	r := &Router{
		broker: codedBroker{broker}, store: store, log: log, config: config, views: make(map[string]*view), kinds: make(map[string]*txn.Kind),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "txsvc_route_changes_total", Help: "Changes of a topic's list of usable queues, which move keys or have them refused.",
		}, []string{"topic"}),
		missing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "txsvc_route_queues_missing", Help: "Accepted queues of a topic that cannot be written, or are not read, now: their keys are refused.",
		}, []string{"topic"}),
	}
	reg.MustRegister(r.changes, r.missing)
	for topic, d := range config.Topics {
		r.add(topic, d)
	}
	for _, kind := range config.Kinds {
		r.kinds[kind.Name] = kind
		r.add(kind.Topic, kind.Destination)
	}
	return r
}

// add makes the topic's view, or adds a destination to it.
func (r *Router) add(topic string, d txn.Destination) {
	v := r.views[topic]
	if v == nil {
		v = &view{topic: topic}
		r.views[topic] = v
		r.changes.WithLabelValues(topic) // there from the start, so that an increase can be seen
	}
	v.java = v.java || d.Java
	v.remaps = v.remaps || d.OnChange != txn.OnChangeRefuse
	if d.OnChange == txn.OnChangeRefuse && !v.refuses {
		v.refuses = true
		r.missing.WithLabelValues(topic)
	}
}

// Topics returns the names of all topics, sorted.
func (r *Router) Topics() []string { return slices.Sorted(maps.Keys(r.views)) }

// Route implements txn.Router.
func (r *Router) Route(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	route, _, err := r.route(ctx, d, in)
	return route, err
}

// route also returns the number of queues among which the selector chose.
func (r *Router) route(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, int, error) {
	v := r.views[d.Topic]
	if v == nil {
		return txn.Route{}, 0, fmt.Errorf("topic %s is not configured", d.Topic)
	}
	live, err := r.look(ctx, v)
	if err != nil && (d.OnChange != txn.OnChangeRefuse || txn.ReasonOf(err) != txn.ReasonNoQueue) {
		return txn.Route{}, 0, err
	}
	route, n, err := r.choose(ctx, v, d, in, live)
	switch {
	case err != nil:
		return txn.Route{}, 0, err
	case contains(live, route.Queue):
		return route, n, nil
	case d.OnChange == txn.OnChangeRefuse:
		return txn.Route{}, 0, txn.BrokerUnavailable(nil,
			"queue %s of topic %s cannot be used now, and the selector keeps its keys (on_change: refuse)", route.Queue, d.Topic)
	default:
		return txn.Route{}, 0, txn.BrokerUnavailable(nil,
			"queue %s of topic %s, which producers in Java choose for this key, cannot be used now", route.Queue, d.Topic)
	}
}

// choose asks the selector, with the list that the destination uses: live queues, accepted queues, or those of
// producers in Java. It does not check that the queue can be used. n is the number of queues among which the selector
// chose.
func (r *Router) choose(ctx context.Context, v *view, d txn.Destination, in txn.SelectorInput, live []txn.Queue) (route txn.Route, n int, err error) {
	java := txn.JavaQueues{Queues: live}
	if d.Java {
		if java, err = r.broker.JavaQueues(ctx, d.Topic); err != nil {
			return txn.Route{}, 0, err
		}
	}
	if d.OnChange != txn.OnChangeRefuse {
		route, err = d.Selector.Select(java.Queues, in)
		return route, len(java.Queues), err
	}
	accepted, err := r.acceptedOf(ctx, v, d, live, java.Order)
	if err != nil {
		return txn.Route{}, 0, err
	}
	if java.Order != "" { // the order topic's own list, whichever brokers are away
		route, err = d.Selector.Select(java.Queues, in)
		return route, len(java.Queues), err
	}
	return accepted.choose(d.Selector, in, time.Now())
}

// look returns the topic's live queues, and notices when they have changed.
func (r *Router) look(ctx context.Context, v *view) ([]txn.Queue, error) {
	live, err := r.broker.Queues(ctx, v.topic)
	if err != nil && txn.ReasonOf(err) != txn.ReasonNoQueue {
		return nil, err // no list is no change
	}
	if err == nil {
		v.remember(live)
	}
	if before, changed := v.notice(live, time.Now()); changed {
		r.changes.WithLabelValues(v.topic).Inc()
		r.log.WarnContext(ctx, "the queues of a topic have changed", "topic", v.topic, "before", Describe(before), "after", Describe(live))
	}
	return live, err
}

// Refresh implements txn.QueueWatch.
func (r *Router) Refresh(ctx context.Context, topic string) {
	if err := r.broker.Refresh(ctx, topic); err != nil {
		r.log.InfoContext(ctx, "asking for a topic's queues again", "topic", topic, "error", err)
	}
}

// Readable implements txn.QueueWatch.
func (r *Router) Readable(topic string, q txn.Queue) bool { return r.broker.Readable(topic, q) }

// Run compares the lists until ctx is done.
func (r *Router) Run(ctx context.Context) error {
	watch, poll := time.NewTicker(watchEvery), time.NewTicker(r.config.Timing.AcceptedEvery)
	defer watch.Stop()
	defer poll.Stop()
	r.poll(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.C:
			r.watch(ctx)
		case <-poll.C:
			r.poll(ctx)
		}
	}
}

// watch notices changes of topics that get no messages.
func (r *Router) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timing.AcceptedWithin)
	defer cancel()
	for _, topic := range r.Topics() {
		v := r.views[topic]
		live, err := r.look(ctx, v)
		switch accepted := v.accepted.Load(); {
		case accepted == nil:
		case err != nil && txn.ReasonOf(err) != txn.ReasonNoQueue:
			r.missing.DeleteLabelValues(topic) // unknown now
		default:
			r.missing.WithLabelValues(topic).Set(float64(len(without(accepted.now(time.Now()), live))))
		}
	}
}

// without returns those of the queues that are not in the sorted list.
func without(queues, list []txn.Queue) []txn.Queue {
	var rest []txn.Queue
	for _, q := range queues {
		if !contains(list, q) {
			rest = append(rest, q)
		}
	}
	return rest
}

func contains(list []txn.Queue, q txn.Queue) bool {
	_, found := slices.BinarySearchFunc(list, q, txn.Queue.Compare)
	return found
}
