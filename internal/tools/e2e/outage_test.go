package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// newLentEnv makes an environment on a stack that the test may break, and others after it: what it needs of the broker is
// nothing, or that it is impatient.
func newLentEnv(t *testing.T, o devstack.Options) (*env, *devstack.Stack) {
	t.Helper()
	stack, url := stacktest.Lent(t, o)
	return newEnvOn(t, url, stack.Nameservers()), stack
}

// newPrivateEnv makes an environment on a stack that the test may break.
func newPrivateEnv(t *testing.T, o devstack.Options) (*env, *devstack.Stack) {
	t.Helper()
	stack := stacktest.Private(t, o)
	return newEnvMigrating(t, stack.DatabaseURL(), stack.Nameservers()), stack
}

// unavailable posts an order and expects 503 with the code and Retry-After.
func (s *service) unavailable(body, code string) {
	s.t.Helper()
	a := s.mustPost("/v1/orders", body, http.StatusServiceUnavailable)
	if a.Code != code {
		s.t.Errorf("got code %s (%s), want %s", a.Code, a.Detail, code)
	}
}

// notReady waits until /readyz says 503 and names what is missing.
func (s *service) notReady(name string) {
	s.t.Helper()
	await.Success(s.t, 20*time.Second, func() error {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		a, _ := read(response)
		if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.Raw, name) {
			return fmt.Errorf("/readyz: %d %s", response.StatusCode, a.Raw)
		}
		return nil
	})
}

func TestBrokerDown(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			e, stack := newLentEnv(t, devstack.Options{})
			e.transport = transport
			s := e.start().ready()
			s.mustPost("/v1/orders", order("before", "k"), http.StatusCreated)
			stack.Broker(0).Kill()
			s.unavailable(order("order-1", "k"), "broker_unavailable")
			if got := len(e.committed()); got != 1 {
				t.Errorf("%d transactions are committed, want the one before", got)
			}
			s.notReady("broker-a")
			if err := stack.Broker(0).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.ready()
			await.Success(t, 20*time.Second, func() error { // the library takes a while to connect again
				a, err := s.post("/v1/orders", order("order-1", "k"))
				if err != nil || a.HTTPStatus != http.StatusCreated {
					return fmt.Errorf("%d %s (%v)", a.HTTPStatus, a.Raw, err)
				}
				return nil
			})
			if got := e.settle(recoverLimit); got != 2 {
				t.Errorf("%d transactions are committed, want 2", got)
			}
			s.stop()
		})
	}
}

// TestBrokerDiesAfterCommit: messages whose END_TRANSACTION is not answered are delivered when the broker is back, once.
func TestBrokerDiesAfterCommit(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{})
	s := e.start().ready()
	const load = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	created, killed := 0, false
	for i := range load {
		wg.Go(func() {
			a, err := s.post("/v1/orders", order(fmt.Sprint("order-", i), fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a.HTTPStatus == http.StatusCreated {
				created++
			}
			if created >= load/4 && !killed {
				killed = true
				stack.Broker(0).Kill()
			}
		})
	}
	wg.Wait()
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready()
	if got := e.settle(30 * time.Second); got < created {
		t.Errorf("%d transactions are committed, %d were answered so", got, created)
	}
}

// TestBrokerPaused: a stopped broker executes the END_TRANSACTIONs in its sockets when it wakes; none is sent twice.
func TestBrokerPaused(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{})
	s := e.start().ready()
	const load = 64
	release := e.hold("all")
	defer release()
	var wg sync.WaitGroup
	for i := range load {
		wg.Go(func() {
			a, err := s.post("/v1/transactions", slow(fmt.Sprint("order-", i), "all"))
			if err != nil || a.HTTPStatus != http.StatusCreated || a.State != "committed" {
				t.Errorf("got %d %s (%v), want a committed transaction", a.HTTPStatus, a.Raw, err)
			}
		})
	}
	await.Success(t, 10*time.Second, func() error { // all half messages are stored, all local transactions wait
		var waiting int
		if err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).Scan(&waiting); err != nil {
			return err
		}
		if got := s.metric(`txsvc_stage_seconds_count{kind="slow",stage="half"}`); got < load || waiting == 0 {
			return fmt.Errorf("%v half messages, %d waiting", got, waiting)
		}
		return nil
	})
	stack.Broker(0).Pause()
	release()
	wg.Wait()
	stack.Broker(0).Resume()
	await.Success(t, 40*time.Second, func() error {
		var pending int
		if err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current WHERE delivery = 'pending'`).Scan(&pending); err != nil {
			return err
		}
		if pending > 0 {
			return fmt.Errorf("%d deliveries are pending", pending)
		}
		return nil
	})
	var messages map[string][]remoting.Message
	await.Success(t, 10*time.Second, func() error {
		if messages = e.visible(); len(messages) < load {
			return fmt.Errorf("%d of %d messages are visible", len(messages), load)
		}
		return nil
	})
	for i := range load {
		if got := len(messages[fmt.Sprint("order-", i)]); got != 1 {
			t.Errorf("order-%d is visible %d times, want 1", i, got)
		}
	}
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
	s := e.start().ready()
	s.mustPost("/v1/orders", order("before", "k"), http.StatusCreated)
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.unavailable(order("order-1", "k"), "database_unavailable")
	s.unavailable(order("", "k"), "database_unavailable")
	s.notReady("database")
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready()
	s.mustPost("/v1/orders", order("order-1", "k"), http.StatusCreated)
	if got := e.settle(recoverLimit); got != 2 {
		t.Errorf("%d transactions are committed, want 2", got)
	}
	s.stop()
}

// TestDatabaseDiesUnderLoad: PostgreSQL is stopped at once while COMMITs are under way; every answer stays true.
func TestDatabaseDiesUnderLoad(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
	s := e.start().ready()
	const load = 300
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := make(map[string]bool)
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	slots := make(chan struct{}, 32)
	for i := range load {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id := fmt.Sprint("order-", i)
			a, err := s.post("/v1/orders", order(id, "k"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.HTTPStatus == http.StatusCreated:
				created[id] = true
			case a.HTTPStatus == http.StatusAccepted && a.State == "unknown":
			case a.HTTPStatus == http.StatusServiceUnavailable:
			default:
				t.Errorf("got %d %s", a.HTTPStatus, a.Raw)
			}
			if len(created) >= load/4 {
				stop()
			}
		})
	}
	<-stopped
	if err := stack.Postgres().StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := stack.Postgres().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready()
	e.settle(30 * time.Second)
	committed := e.committed()
	for id := range created {
		if _, ok := committed[id]; !ok {
			t.Errorf("%s was answered committed and is not there", id)
		}
	}
	for i := range load { // every id can be used again, and answers truthfully
		id := fmt.Sprint("order-", i)
		_, was := committed[id]
		await.Success(t, 30*time.Second, func() error { // as long as it is being found out, the answer says so
			a, err := s.post("/v1/orders", order(id, "k"))
			switch {
			case err != nil:
				return err
			case a.HTTPStatus == http.StatusAccepted && a.State == "unknown":
				return fmt.Errorf("%s is still unknown", id)
			case a.HTTPStatus != http.StatusCreated || a.Replayed != was:
				t.Errorf("%s again: got %d %s, it had committed: %t", id, a.HTTPStatus, a.Raw, was)
			}
			return nil
		})
	}
	if got := e.settle(30 * time.Second); got != load {
		t.Errorf("%d transactions are committed, want %d", got, load)
	}
}

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.config = e.writeConfig(`
kinds:
  order.create:
    path: /v1/orders
    topic: no-such-topic
    local: {handler: orders}
`)
	s := e.start()
	s.notReady("topic:no-such-topic")
	s.unavailable(order("order-1", "k"), "broker_unavailable")
	if got := len(e.committed()); got != 0 {
		t.Errorf("%d transactions are committed, want none", got)
	}
}

func TestNameserverByHostName(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.transport = transport
			e.nameservers = []string{strings.Replace(e.nameservers[0], "127.0.0.1", "localhost", 1)} // anew: others share the list
			s := e.start().ready()
			s.mustPost("/v1/orders", order("", "k"), http.StatusCreated)
		})
	}
}
