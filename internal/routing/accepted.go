package routing

import (
	"context"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// acceptedOf returns the topic's accepted list, for a destination whose selector is the accepted one.
func (r *Router) acceptedOf(ctx context.Context, v *view, d txn.Destination, live []txn.Queue, order string) (*acceptance, error) {
	selector := OrderedSelector(d, order)
	a, err := r.acceptedList(ctx, v, live, selector)
	if err != nil || selector == "" {
		return a, err
	}
	return a, a.guard(v.topic, selector, time.Now())
}

// OrderedSelector returns a text that changes when the selector of ordered messages changes. For java_hash it includes the
// topic's orderTopicConf, because that decides about queues, too.
func OrderedSelector(d txn.Destination, order string) string {
	if d.OrderedSelector == "" || order == "" {
		return d.OrderedSelector
	}
	return d.OrderedSelector + " over " + order
}

// acceptedList returns the topic's accepted list. The first use of a topic without a list records the live queues, if
// no broker of the topic is missing. The first use of a list without a selector of ordered messages records that
// selector. One caller at a time asks the database, and the others share the answer.
func (r *Router) acceptedList(ctx context.Context, v *view, live []txn.Queue, selector string) (*acceptance, error) {
	if a := v.accepted.Load(); a != nil && (selector == "" || a.Selector != "") {
		return a, nil
	}
	result := r.asking.DoChan(v.topic+" "+selector, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.Timing.AcceptedWithin)
		defer cancel()
		return r.readOrRecord(ctx, v, live, selector)
	})
	select {
	case answer := <-result:
		if answer.Err != nil {
			return nil, answer.Err
		}
		return answer.Val.(*acceptance), nil //nolint:forcetypeassert // the function above returns nothing else
	case <-ctx.Done():
		return nil, unknownLists(v.topic, ctx.Err())
	}
}

func (r *Router) readOrRecord(ctx context.Context, v *view, live []txn.Queue, selector string) (*acceptance, error) {
	lists, err := r.store.AcceptedQueues(ctx, []string{v.topic})
	if err != nil {
		return nil, unknownLists(v.topic, err)
	}
	list, ok := lists[v.topic]
	if ok && (selector == "" || list.Selector != "") {
		return r.adopt(ctx, v, list), nil
	}
	if !ok {
		if err := r.complete(ctx, v.topic, live); err != nil {
			return nil, err
		}
	}
	list, err = r.store.AcceptFirst(ctx, v.topic, live, selector)
	if err != nil {
		return nil, unknownLists(v.topic, err)
	}
	r.log.InfoContext(ctx, "a topic's queues are its first accepted list", "topic", v.topic, "version", list.Version, "queues", Describe(list.Queues))
	return r.adopt(ctx, v, list), nil
}

func unknownLists(topic string, err error) error {
	return txn.DatabaseUnavailable(err, "the database did not tell which queues of topic %s are accepted (on_change: refuse)", topic)
}

// complete refuses a list in which a broker of the topic is missing, because it would become the topic's accepted list.
func (r *Router) complete(ctx context.Context, topic string, live []txn.Queue) error {
	if len(live) == 0 {
		return txn.BrokerUnavailable(nil, "topic %s has no queue that can be used, and no accepted list (on_change: refuse)", topic)
	}
	layout, err := r.broker.Topic(ctx, topic)
	if err != nil {
		return err
	}
	if len(layout.Absent) > 0 {
		return txn.BrokerUnavailable(nil, "topic %s has no accepted list of queues yet (on_change: refuse), and none is made while %s has no master",
			topic, strings.Join(layout.Absent, ", "))
	}
	return nil
}

// adopt makes this list the one in use, unless the router knows a newer one.
func (r *Router) adopt(ctx context.Context, v *view, list txn.AcceptedQueues) *acceptance {
	next := &acceptance{AcceptedQueues: list, from: time.Now().Add(list.Pause)}
	for {
		known := v.accepted.Load()
		if known != nil && (known.Version > next.Version || known.Version == next.Version && (known.Selector != "" || next.Selector == "")) {
			return known
		}
		if !v.accepted.CompareAndSwap(known, next) {
			continue
		}
		if known == nil && list.Pause <= 0 { // nothing has changed: this process has only just read it
			return next
		}
		r.log.InfoContext(ctx, "accepted queues of a topic have changed", "topic", v.topic, "version", list.Version,
			"queues", Describe(list.Queues), "before", Describe(list.Previous), "pause", list.Pause)
		return next
	}
}

// poll reads the lists that operators have accepted, and adopts them.
func (r *Router) poll(ctx context.Context) {
	var topics []string
	for _, topic := range r.Topics() {
		if r.views[topic].refuses {
			topics = append(topics, topic)
		}
	}
	if len(topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timing.AcceptedWithin)
	defer cancel()
	lists, err := r.store.AcceptedQueues(ctx, topics)
	if err != nil {
		r.log.DebugContext(ctx, "reading the accepted queues; it is tried again", "error", err)
		return
	}
	for topic, list := range lists {
		r.adopt(ctx, r.views[topic], list)
	}
}
