package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestOneIDAtTwoReplicas: the same request reaches two replicas at once, many times; one transaction, one message.
func TestOneIDAtTwoReplicas(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	replicas := []*service{e.start().ready(), e.start().ready()}
	const ids, each = 20, 6
	var wg sync.WaitGroup
	var mu sync.Mutex
	messages := make(map[string]map[string]bool)
	for i := range ids {
		for n := range each {
			wg.Go(func() {
				a := replicas[n%2].mustPost("/v1/orders", order(fmt.Sprint("order-", i), "k"), http.StatusCreated)
				mu.Lock()
				defer mu.Unlock()
				if messages[a.ID] == nil {
					messages[a.ID] = make(map[string]bool)
				}
				messages[a.ID][a.MessageID] = true
			})
		}
	}
	wg.Wait()
	for id, answered := range messages {
		if len(answered) != 1 {
			t.Errorf("%s was answered with %d different messages, want 1", id, len(answered))
		}
	}
	if got := e.settle(recoverLimit); got != ids {
		t.Errorf("%d transactions are committed, want %d", got, ids)
	}
}

// TestSurvivorDelivers: a replica dies with committed transactions; the other makes them visible, without a restart.
func TestSurvivorDelivers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start().ready()
	e.dieCommitted(inFlight)
	if got := e.settle(recoverLimit); got != inFlight {
		t.Errorf("%d transactions are committed, want %d", got, inFlight)
	}
}

// TestPausedReplica: a replica is stopped with committed transactions and wakes after another has delivered them.
func TestPausedReplica(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pausing, other := e.start().ready(), e.start().ready()
	release := e.hold("k")
	defer release()
	var wg sync.WaitGroup
	const load = 8
	for i := range load {
		wg.Go(func() {
			a, err := pausing.post("/v1/transactions", slow(fmt.Sprint("tx-", i), "k"))
			if err != nil || a.State != "committed" {
				t.Errorf("got %s (%v), want a committed transaction", a.Raw, err)
			}
		})
	}
	await.Success(t, 10*time.Second, func() error {
		var waiting int
		err := e.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil || waiting < load {
			return fmt.Errorf("%d of %d local transactions wait (%v)", waiting, load, err)
		}
		return nil
	})
	pausing.signal(stopSignal)
	release() // the first commits in the database while its client is stopped; the others follow
	await.Success(t, recoverLimit, func() error {
		var pending, delivered int
		err := e.db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE delivery = 'pending'), count(*) FILTER (WHERE delivery = 'delivered')
			FROM txsvc.current`).Scan(&pending, &delivered)
		if err != nil || pending > 0 || delivered != load {
			return fmt.Errorf("%d pending, %d delivered (%v)", pending, delivered, err)
		}
		return nil
	})
	if got := other.metric(`txsvc_deliveries_total{path="resolver",result="delivered"`); got != load {
		t.Errorf("the other replica delivered %v, want %d", got, load)
	}
	pausing.signal(contSignal)
	wg.Wait()
	for id, copies := range e.visible() {
		if len(copies) != 1 {
			t.Errorf("%s is visible %d times, want 1", id, len(copies))
		}
	}
}

// TestOverloaded: more than the limit is refused at once, and says so.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start("TXSVC_MAX_IN_FLIGHT=1").ready()
	release := e.hold("k")
	defer release()
	done := s.posting(slow("tx-1", "k"))
	await.Success(t, 10*time.Second, func() error {
		if s.metric(`txsvc_in_flight `) != 1 {
			return fmt.Errorf("not in flight yet")
		}
		return nil
	})
	s.unavailable(order("", "other"), "overloaded")
	release()
	if a := <-done; a.HTTPStatus != http.StatusCreated {
		t.Errorf("got %d %s, want 201", a.HTTPStatus, a.Raw)
	}
	s.mustPost("/v1/orders", order("", "other"), http.StatusCreated)
}
