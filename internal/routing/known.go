package routing

import (
	"context"

	"github.com/txsvc/txsvc/internal/txn"
)

// remember keeps a list that is not empty.
func (v *view) remember(live []txn.Queue) {
	if last := v.last.Load(); last == nil || !same(*last, live) {
		kept := live
		v.last.Store(&kept)
	}
}

// RouteKnown implements txn.Routing: it is Route by the list of queues that was known last, or is accepted, whether they can
// be written now or not.
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
