package leases_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/pgtest"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestReroute: the row goes on as one that never had a half message, in its new queue and under its new UNIQ_KEY; the half
// message is one of an attempt that lost. Only the holder of the lease can do that.
func TestReroute(t *testing.T) {
	t.Parallel()
	e := setup(t)
	a := e.CommitOrders("tx-1")[0]
	e.expire(time.Second)
	c := e.claimDue(brokers, 10)[0]
	route := txn.Route{Queue: txn.Queue{Broker: "broker-b", ID: 7}, Selector: "lanes", Lane: "eu/canary", Reason: "since the other is gone"}
	lost := c.Lease
	lost.Epoch--
	if held, err := e.Store.Reroute(t.Context(), lost, route, "NEW", "why"); err != nil || held {
		t.Errorf("with a lease that was lost: got %t, %v, want false", held, err)
	}
	if held, err := e.Store.Reroute(t.Context(), c.Lease, route, "NEW", "why"); err != nil || !held {
		t.Fatalf("got %t, %v, want true", held, err)
	}
	got := e.Find("tx-1")
	if diff := cmp.Diff(route, got.Route); diff != "" || got.MessageID != "NEW" || got.Delivery != txn.DeliveryPending {
		t.Errorf("got message %s, %s; route (-want +got):\n%s", got.MessageID, got.Delivery, diff)
	}
	resolution, _ := e.Decide(a)
	pgtest.WantResolution(t, resolution, txn.ResolutionRollback)
	if claims := e.claimDue([]string{"broker-a", "broker-b"}, 10); len(claims) != 0 {
		t.Errorf("it is claimed as a half message: %+v", claims)
	}
	claims, err := e.Store.ClaimOutbox(t.Context(), "broker-b", c.Message.Topic, 10)
	if err != nil || len(claims) != 1 || claims[0].Attempts != 1 || claims[0].Message.Queue != route.Queue ||
		string(claims[0].Message.Body) != string(c.Message.Body) || claims[0].Message.UniqKey != "NEW" {
		t.Errorf("got %+v, %v, want it once, to be sent to its new queue", claims, err)
	}
}
