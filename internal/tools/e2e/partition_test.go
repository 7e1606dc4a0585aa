package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestBrokerNetwork loses and holds up what passes between the service and the broker, under load. Every answer is true,
// and every committed message is visible once.
func TestBrokerNetwork(t *testing.T) {
	for name, breakIt := range map[string]func(*network){
		"replies lost": func(n *network) {
			for range 4 {
				n.set(false, true)
				time.Sleep(500 * time.Millisecond)
				n.Cut()
				n.set(false, false)
				time.Sleep(time.Second)
			}
		},
		"held and released": func(n *network) {
			n.set(true, false)
			time.Sleep(12 * time.Second)
			n.set(false, false)
		},
		"held and cut": func(n *network) {
			n.set(true, false)
			time.Sleep(4 * time.Second)
			n.Cut()
			n.set(false, false)
		},
	} {
		for _, transport := range transports {
			if transport == "library" && name == "held and cut" {
				continue // it sends half messages only: "replies lost" cuts their connection, too
			}
			t.Run(name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				e := newEnv(t)
				e.transport = transport
				broker, through := e.behindNetwork()
				s := e.start(through).ready()
				finish := s.load(6)
				time.Sleep(time.Second)
				breakIt(broker)
				time.Sleep(2 * time.Second)
				created, refused := finish()
				e.settle(40 * time.Second)
				rows := e.committed()
				for _, id := range created {
					if _, there := rows[id]; !there {
						t.Errorf("%s was answered committed, and is not", id)
					}
				}
				for _, id := range refused {
					if _, there := rows[id]; there {
						t.Errorf("%s was answered 503, and is committed", id)
					}
				}
			})
		}
	}
}

// load posts orders with so many clients until finish is called, which returns the ids by their answer.
func (s *service) load(clients int) (finish func() (created, refused []string)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var created, refused []string
	stop := make(chan struct{})
	client := func(c int) {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			id := fmt.Sprintf("order-%d-%d", c, n)
			a, err := s.post("/v1/orders", order(id, id))
			mu.Lock()
			switch {
			case err == nil && a.HTTPStatus == http.StatusCreated:
				created = append(created, id)
			case err == nil && a.HTTPStatus == http.StatusServiceUnavailable:
				refused = append(refused, id)
			default:
				s.t.Errorf("%s: got %d %s (%v), want 201 or 503", id, a.HTTPStatus, a.Raw, err)
			}
			mu.Unlock()
		}
	}
	for c := range clients {
		wg.Go(func() { client(c) })
	}
	return func() ([]string, []string) {
		close(stop)
		wg.Wait()
		return created, refused
	}
}

// TestHeldUpBeyondTheLease: a proxy acknowledges END_TRANSACTIONs of one replica, and passes them on when another replica
// has delivered the messages in its place. No client of this broker can prevent the second copies (see guarantees.md);
// they have the same id, and are counted.
func TestHeldUpBeyondTheLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	broker, through := e.behindNetwork()
	cutOff, other := e.start(through).ready(), e.start().ready()
	release := e.hold("k")
	defer release()
	const load = 5
	var wg sync.WaitGroup
	for i := range load {
		wg.Go(func() {
			a, err := cutOff.post("/v1/transactions", slow(fmt.Sprint("tx-", i), "k"))
			if err != nil || a.State != "committed" || a.Delivery != "pending" {
				t.Errorf("got %s (%v), want a committed transaction whose delivery is pending", a.Raw, err)
			}
		})
	}
	await.Success(t, 10*time.Second, func() error {
		if got := cutOff.metric(`txsvc_stage_seconds_count{kind="slow",stage="half"}`); got != load {
			return fmt.Errorf("%v half messages are stored", got)
		}
		return nil
	})
	broker.set(true, false)
	release()
	wg.Wait()
	await.Success(t, 2*recoverLimit, func() error {
		var delivered int
		err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current WHERE delivery = 'delivered'`).Scan(&delivered)
		if err != nil || delivered != load {
			return fmt.Errorf("%d of %d are delivered (%v)", delivered, load, err)
		}
		return nil
	})
	broker.set(false, false)
	await.Success(t, 60*time.Second, func() error {
		if got := other.metric("txsvc_duplicates_suspected_total"); got != load {
			return fmt.Errorf("%v duplicates are suspected, want %d", got, load)
		}
		return nil
	})
	for id, copies := range e.visible() {
		if !strings.HasPrefix(id, "tx-") || len(copies) != 2 {
			t.Errorf("%s is visible %d times, want twice and no others", id, len(copies))
		}
	}
}
