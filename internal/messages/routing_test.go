package messages_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/txn"
)

// byTenant has two lanes of two queues each.
func byTenant() selector.Spec {
	ref := func(ids ...int) (list []selector.QueueRef) {
		for _, id := range ids {
			list = append(list, selector.QueueRef{ID: id})
		}
		return list
	}
	return selector.Spec{Type: selector.TypeLanes, Lanes: &selector.Lanes{
		By: "payload:/tenant", Within: selector.Spec{Type: selector.TypeHash},
		Lanes: []selector.Lane{{Name: "big", Queues: ref(0, 1), Match: []string{"acme"}}, {Name: selector.LaneDefault, Queues: ref(2, 3)}},
	}}
}

// TestLanesOfMessages: a body chooses the lane as a payload does, and a batch has one.
func TestLanesOfMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stacktest.Shared(t).Nameservers, byTenant(), nil)
	const acme, other = `{"tenant": "acme"}`, `{"tenant": "small"}`
	batch := func(bodies ...string) messages.Request {
		r := f.request("k", bodies...)
		for i := range r.Messages {
			r.Messages[i].JSON = true
		}
		return r
	}
	for lane, r := range map[string]messages.Request{"big": batch(acme), selector.LaneDefault: batch(other, `{"tenant": "smaller"}`, other)} {
		if got := f.send(r).Route; got.Lane != lane || (got.Queue.ID < 2) != (lane == "big") {
			t.Errorf("got %+v, want lane %s", got, lane)
		}
	}
	for _, mode := range []messages.Mode{messages.ModeSync, messages.ModeAsync, messages.ModeOneWay} {
		r := batch(acme, acme, other)
		r.Mode = mode
		_, err := f.service.Send(t.Context(), r)
		const want = "/batch/2: is of the lane default, the first message of big: a batch goes to one queue"
		if e, ok := errors.AsType[*txn.Error](err); !ok || e.Code != txn.CodeInvalidRequest || e.Detail != want {
			t.Errorf("mode %s: got %v, want invalid_request: %s", mode, err, want)
		}
	}
	f.await(1 + 3)
	single := batch(`{"tenant": 1}`)
	single.Batch = false
	for want, r := range map[string]messages.Request{"/body/tenant": single, "/batch/1/body/tenant": batch(acme, `{"tenant": 1}`)} {
		_, err := f.service.Send(t.Context(), r)
		e, ok := errors.AsType[*txn.Error](err)
		if !ok || len(e.Fields) != 1 || e.Fields[0].Pointer != want || e.Detail != want+": must be a string: it names the lane" {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

// outdated is a router that names a queue which is gone until it is asked to look again.
type outdated struct {
	router
	refreshed atomic.Int32
}

func (o *outdated) Route(ctx context.Context, d txn.Destination, in txn.SelectorInput) (txn.Route, error) {
	route, err := o.router.Route(ctx, d, in)
	if o.refreshed.Load() == 0 {
		route.Queue.ID = queues
	}
	return route, err
}

func (o *outdated) Refresh(context.Context, string) { o.refreshed.Add(1) }

// TestQueueIsGone: a queue that the broker does not have makes the topic be looked at again, once, and the answer names the
// queue that the message is in.
func TestQueueIsGone(t *testing.T) {
	f := newShared(t, nil)
	o := &outdated{router: f.router()}
	s := f.serviceWith(o, prometheus.NewRegistry())
	receipt, err := s.Send(t.Context(), f.request("k", "1", "2"))
	if err != nil {
		t.Fatal(err)
	}
	found := f.await(2)
	if got := len(found[receipt.Route.Queue]); got != 2 || o.refreshed.Load() != 1 {
		t.Errorf("the queue of the answer, %s, holds %d messages after %d looks, want 2 after 1", receipt.Route.Queue, got, o.refreshed.Load())
	}
}
