package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Preview returns the queue to which a message would go now, and sends nothing. Errors are *txn.Error, among them those
// that the message would get.
func (r *Router) Preview(ctx context.Context, q txn.RouteQuery) (txn.RoutePreview, error) {
	d, ok := r.config.Topics[q.Topic]
	if q.Kind != "" {
		kind := r.kinds[q.Kind]
		if kind == nil {
			return txn.RoutePreview{}, txn.Errorf(txn.CodeUnknownKind, "no kind has the name %q", q.Kind)
		}
		d, ok = kind.Destination, true
	}
	if !ok {
		return txn.RoutePreview{}, errNoSuchTopic
	}
	route, n, err := r.route(ctx, d, q.SelectorInput)
	return txn.RoutePreview{Topic: d.Topic, Route: route, Queues: n}, err
}

var errNoSuchTopic = txn.Errorf(txn.CodeNotFound, "the configuration has no topic of this name")

// TopicQueues returns the topic's queues as selectors see them. Errors are *txn.Error.
func (r *Router) TopicQueues(ctx context.Context, topic string) (txn.TopicQueues, error) {
	v, d := r.views[topic], r.config.Topics[topic]
	if v == nil || d.Selector == nil {
		return txn.TopicQueues{}, errNoSuchTopic
	}
	live, err := r.look(ctx, v)
	if err != nil && txn.ReasonOf(err) != txn.ReasonNoQueue {
		return txn.TopicQueues{}, err
	}
	layout, err := r.broker.Topic(ctx, topic)
	if err != nil && txn.ReasonOf(err) != txn.ReasonNoQueue {
		return txn.TopicQueues{}, err
	}
	told := txn.TopicQueues{Topic: topic, Selector: d.Selector.Name(), OnChange: d.OnChange, Kinds: r.kindsOf(topic)}
	if seen := v.live.Load(); seen != nil {
		told.ChangedAt = seen.changedAt
	}
	var accepted []txn.Queue
	if v.refuses {
		a, err := r.acceptedList(ctx, v, live, "")
		if err != nil && txn.CodeOf(err) != txn.CodeBrokerUnavailable { // then there is no list
			return txn.TopicQueues{}, err
		}
		if a != nil {
			accepted = a.now(time.Now())
			told.Version, told.AcceptedAt = a.Version, a.AcceptedAt
			told.Pause = max(time.Until(a.from), 0)
		}
	}
	told.Queues = states(layout, accepted)
	return told, nil
}

func (r *Router) kindsOf(topic string) []txn.KindRouting {
	var list []txn.KindRouting
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		if k := r.kinds[name]; k.Topic == topic {
			list = append(list, txn.KindRouting{Kind: name, Selector: k.Selector.Name(), OnChange: cmp.Or(k.OnChange, txn.OnChangeRemap)})
		}
	}
	return list
}

// states merges, for each queue, the answers of name servers and the accepted list.
func states(layout txn.TopicLayout, accepted []txn.Queue) []txn.QueueState {
	by := make(map[txn.Queue]*txn.QueueState)
	of := func(q txn.Queue) *txn.QueueState {
		if by[q] == nil {
			by[q] = &txn.QueueState{Queue: q}
		}
		return by[q]
	}
	for _, b := range layout.Brokers {
		for id := range max(b.Read, b.Write) {
			state := of(txn.Queue{Broker: b.Broker, ID: id})
			state.Writable, state.Readable = id < b.Writable, id < b.Readable
		}
	}
	for _, q := range accepted {
		of(q).Accepted = true
	}
	list := make([]txn.QueueState, 0, len(by))
	for _, state := range by {
		list = append(list, *state)
	}
	slices.SortFunc(list, func(a, b txn.QueueState) int { return a.Compare(b.Queue) })
	return list
}

// Health is the state of one topic, for /readyz.
type Health struct {
	// Err says that no message can be routed. Its text is fit for clients.
	Err error
	// Degraded is true when some keys are refused, or when the topic has queues that are not used.
	Degraded bool
	Detail   string
}

// Health looks at a topic of the configuration. A topic can be used as long as one message can be routed. If a selector
// has on_change: refuse, the accepted queues count, and the text names those that are missing.
func (r *Router) Health(ctx context.Context, topic string) Health {
	h := r.health(ctx, r.views[topic])
	h = r.javaHealth(ctx, r.views[topic], h)
	layout, err := r.broker.Topic(ctx, topic)
	if err != nil {
		return h
	}
	for _, b := range layout.Brokers {
		if why := b.Unread(); why != "" {
			h = h.with(why)
		}
	}
	return h
}

func detail(err error) string {
	if words := txn.WordsOf(err); words != "" {
		return words
	}
	return err.Error()
}

// with adds a degraded reason.
func (h Health) with(why string) Health {
	h.Degraded = true
	if e, ok := errors.AsType[*txn.Error](h.Err); ok {
		told := *e
		told.Detail += "; " + why
		h.Err = &told
		return h
	}
	h.Detail += "; " + why
	return h
}

// javaHealth adds a degraded reason when keys are refused because producers in Java choose a queue for them that cannot
// be used.
func (r *Router) javaHealth(ctx context.Context, v *view, h Health) Health {
	live := v.live.Load()
	if !v.java || live == nil || len(live.queues) == 0 {
		return h
	}
	java, err := r.broker.JavaQueues(ctx, v.topic)
	if err != nil {
		return h.with(detail(err))
	}
	gone := without(java.Queues, live.queues)
	if len(gone) == 0 || v.refuses && java.Order == "" { // the accepted list counts, and has its reason already
		return h
	}
	return h.with(fmt.Sprintf("producers in Java choose among %s, of which %s cannot be used now", Describe(java.Queues), Describe(gone)))
}

func (r *Router) health(ctx context.Context, v *view) Health {
	live, err := r.look(ctx, v)
	if err != nil {
		return Health{Err: err}
	}
	changed := changedText(v.live.Load(), time.Now())
	if !v.refuses {
		return Health{Detail: fmt.Sprintf("%d queues%s", len(live), changed)}
	}
	a, err := r.acceptedList(ctx, v, live, "")
	if err != nil {
		return Health{Err: err}
	}
	h := r.healthOf(a, live, v.remaps, changed)
	for _, kind := range r.kinds {
		if kind.Topic != v.topic || kind.OrderedSelector == "" || kind.OnChange != txn.OnChangeRefuse {
			continue
		}
		var java txn.JavaQueues
		if kind.Java {
			if java, err = r.broker.JavaQueues(ctx, v.topic); err != nil {
				return Health{Err: err}
			}
		}
		if _, err := r.acceptedOf(ctx, v, kind.Destination, live, java.Order); err != nil {
			return h.with(detail(err))
		}
		break // all ordered kinds of a topic have one selector
	}
	return h
}

func (r *Router) healthOf(a *acceptance, live []txn.Queue, remaps bool, changed string) Health {
	accepted := a.now(time.Now())
	gone, extra := without(accepted, live), without(live, accepted)
	h := Health{Degraded: len(gone) > 0}
	switch {
	case len(gone) == 0:
		h.Detail = fmt.Sprintf("%d queues", len(accepted))
	default:
		h.Detail = fmt.Sprintf("%d of %d accepted queues can be used; missing %s", len(accepted)-len(gone), len(accepted), Describe(gone))
	}
	if len(extra) > 0 {
		h.Detail += fmt.Sprintf("; not accepted: %s", Describe(extra))
	}
	h.Detail += changed
	if len(gone) == len(accepted) && !remaps {
		h.Err = txn.BrokerUnavailable(nil, "%s", h.Detail)
	}
	return h
}

// changedText is empty when the live queues have not changed since the start.
func changedText(seen *sighting, now time.Time) string {
	if seen == nil || seen.changedAt.IsZero() {
		return ""
	}
	return fmt.Sprintf("; changed %s ago, from %d queues", now.Sub(seen.changedAt).Round(time.Second), seen.before)
}
