package routing

import (
	"context"

	"github.com/txsvc/txsvc/internal/txn"
)

// remember stores the live queues, unless there are none.
func (v *view) remember(live []txn.Queue) {
	if last := v.last.Load(); last == nil || !same(*last, live) {
		kept := live
		v.last.Store(&kept)
	}
}

// RouteKnown implements txn.Routing. It is Route by the live queues that were known last, or by the accepted ones,
// whether they can be written now or not.
func (r *Router) RouteKnown(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	v := r.views[d.Topic]
	if v == nil {
		return txn.Route{}, txn.BrokerUnavailable(nil, "topic %s is not configured", d.Topic)
	}
	if d.OnChange == txn.OnChangeRefuse || d.Java {
		route, _, err := r.choose(ctx, v, d, in, nil)
		return route, err
	}
	last := v.last.Load()
	if last == nil {
		return txn.Route{}, txn.BrokerUnavailable(nil, "no queue of topic %s was known since this process began", d.Topic)
	}
	return d.Selector.Select(*last, in)
}
