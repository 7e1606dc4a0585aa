package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// countedKinds are ordered kinds whose local transactions are numbered by shard key, in the order of their COMMITs: each
// locks its key's counter until then. The last one waits for a lock that a test can hold.
const countedKinds = `
kinds:
  half: {topic: %[1]s, ordered: true, local: {sql: "%[2]s"}}
  outbox: {topic: %[1]s, ordered: true, delivery: outbox, body: result, local: {sql: "%[2]s"}}
  fallback: {topic: %[1]s, ordered: true, fallback: outbox, local: {sql: "%[2]s"}}
  unordered: {topic: %[1]s, delivery: outbox, local: {sql: "%[2]s"}}
  held:
    topic: %[1]s
    ordered: true
    timeout: 20s
    local: {sql: "SELECT pg_advisory_xact_lock(hashtext(@shard_key)); %[2]s"}
`

const countSQL = `INSERT INTO counters VALUES (@shard_key, 1) ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n`

// counted gives an environment the counted kinds.
func (e *env) counted() *env {
	e.t.Helper()
	if _, err := e.db.Exec(context.Background(), `CREATE TABLE counters (key text PRIMARY KEY, n int NOT NULL)`); err != nil {
		e.t.Fatal(err)
	}
	e.config = e.writeConfig(fmt.Sprintf(countedKinds, e.topic, countSQL))
	return e
}

// numbered is a request of a counted kind.
func numbered(kind, id, key string) string {
	return fmt.Sprintf(`{"kind": %q, "id": %q, "shard_key": %q, "payload": {"id": %q}}`, kind, id, key, id)
}

// loaded numbers all requests of the tests.
var loaded atomic.Int64

// load posts so many requests over the kinds and keys to the replicas, by twelve clients at once, and returns how many were
// answered 201. What a replica that dies, or a dependency that is away, lets fail is not repeated.
func load(t *testing.T, replicas []*service, kinds []string, keys, requests int) (created int) {
	t.Helper()
	created, _ = timedLoad(t, replicas, kinds, keys, requests)
	return created
}

// timedLoad also returns how long the answers took, sorted.
func timedLoad(t *testing.T, replicas []*service, kinds []string, keys, requests int) (created int, took []time.Duration) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range 12 {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= requests {
					return
				}
				id := fmt.Sprintf("%s-%d", kinds[i%len(kinds)], loaded.Add(1))
				start := time.Now()
				a, err := replicas[i%len(replicas)].post("/v1/transactions", numbered(kinds[i%len(kinds)], id, fmt.Sprint("key-", i%keys)))
				mu.Lock()
				took = append(took, time.Since(start))
				switch {
				case err != nil:
				case a.HTTPStatus == http.StatusCreated:
					created++
				case a.HTTPStatus < http.StatusInternalServerError && a.HTTPStatus != http.StatusTooManyRequests && a.HTTPStatus != http.StatusAccepted:
					t.Errorf("%s: got %d %s", id, a.HTTPStatus, a.Raw)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return created, took
}

// settleInOrder waits until all that is committed is delivered, and then checks that it is visible, once each, and per key
// in the order of the COMMITs; it returns how many there are. Deliveries that were put aside are left out.
func (e *env) settleInOrder(limit time.Duration) int {
	e.t.Helper()
	await.Success(e.t, limit, func() error {
		var pending int
		var example string
		err := e.db.QueryRow(context.Background(), `SELECT count(*), coalesce(min(id || ': ' || coalesce(last_error, '')), '') FROM txsvc.current
			WHERE delivery = 'pending' AND lease_until IS DISTINCT FROM 'infinity'`).Scan(&pending, &example)
		if err != nil || pending > 0 {
			return fmt.Errorf("%d deliveries are pending, for example %s (%v)", pending, example, err)
		}
		return nil
	})
	type row struct {
		key     string
		n       int
		ordered bool
	}
	rows := make(map[string]row)
	found, err := e.db.Query(context.Background(), `SELECT id, shard_key, (result->>'n')::int, ordered FROM txsvc.current WHERE delivery = 'delivered'`)
	if err != nil {
		e.t.Fatal(err)
	}
	for found.Next() {
		var id string
		var r row
		if err := found.Scan(&id, &r.key, &r.n, &r.ordered); err != nil {
			e.t.Fatal(err)
		}
		rows[id] = r
	}
	var messages map[string][]remoting.Message
	await.Success(e.t, 10*time.Second, func() error { // consumers see it some milliseconds after it was confirmed
		messages = e.visible()
		for id := range rows {
			if len(messages[id]) == 0 {
				return fmt.Errorf("transaction %s is delivered and not visible", id)
			}
		}
		return nil
	})
	lines := make(map[string][]remoting.Message)
	for id, copies := range messages {
		if r, ok := rows[id]; !ok || len(copies) != 1 {
			e.t.Errorf("transaction %s is visible %d times, committed: %t", id, len(copies), ok)
		} else if r.ordered {
			lines[r.key] = append(lines[r.key], copies[0])
		}
	}
	for key, line := range lines {
		slices.SortFunc(line, func(a, b remoting.Message) int { return cmp.Compare(a.QueueOffset, b.QueueOffset) })
		for i := 1; i < len(line); i++ {
			before, after := line[i-1].Properties.Get("TX_ID"), line[i].Properties.Get("TX_ID")
			if rows[before].n > rows[after].n || line[i].QueueID != line[i-1].QueueID {
				e.t.Errorf("%s: %s (%d, queue %d) is visible before %s (%d, queue %d)", key, before, rows[before].n, line[i-1].QueueID, after, rows[after].n, line[i].QueueID)
			}
		}
	}
	return len(rows)
}

func (e *env) replicas(n int, extra ...string) (all []*service) {
	e.t.Helper()
	for range n {
		all = append(all, e.start(extra...))
	}
	for _, s := range all {
		s.ready()
	}
	return all
}

// TestOrderOverReplicas: three replicas work on the same few keys at once.
func TestOrderOverReplicas(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	const requests = 600
	created := load(t, e.replicas(3), []string{"half", "outbox", "fallback"}, 5, requests)
	if got := e.settleInOrder(recoverLimit); got != created || created < requests*9/10 { // a loaded machine may time out
		t.Errorf("%d of %d transactions are committed, %d were answered so", got, requests, created)
	}
}

// TestOrderKilledAt: one of three replicas dies while all work on the same keys, with half messages and without. The model
// kills processes at all other points.
func TestOrderKilledAt(t *testing.T) {
	for point, kinds := range map[string][]string{
		"committed@3": {"half"}, "relay-sent@1": {"outbox", "outbox", "outbox", "half"},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t).counted()
			dying := e.start("TXSVC_FAILPOINT=" + point).ready()
			replicas := append(e.replicas(2), dying)
			created := load(t, replicas, kinds, 5, 300)
			dying.awaitDeath()
			e.start().ready()
			if got := e.settleInOrder(60 * time.Second); got < created {
				t.Errorf("%d transactions are committed, %d were answered so", got, created)
			}
		})
	}
}

var (
	stuckTurns = flag.Int("stuck-turns", 1, "how often a key is stuck in TestStuckKey")
	others     = flag.Int("others", 200, "requests with other keys, each time before and meanwhile")
)

// TestStuckKey: a local transaction hangs. Those of its key wait, and use one connection in each replica; those of others
// go on; and no more wait than can get through. Its log has how long others took:
//
//	go test -run 'TestStuckKey$' -v ./internal/tools/e2e -stuck-turns 10 -others 1000
func TestStuckKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	replicas := e.replicas(2)
	sent, created := 100, load(t, replicas, []string{"half", "outbox"}, 7, 100)
	var usual, meanwhile []time.Duration
	for turn := range *stuckTurns {
		done, took := timedLoad(t, replicas, []string{"half", "outbox"}, 7, *others)
		usual = append(usual, took...)
		answered := e.whileStuck(replicas, turn, func() {
			var got int
			got, took = timedLoad(t, replicas, []string{"half", "outbox"}, 7, *others)
			meanwhile = append(meanwhile, took...)
			if got < *others*9/10 { // a loaded machine may time out
				t.Errorf("%d of %d requests with other keys were answered 201", got, *others)
			}
			done += got
		})
		sent, created = sent+2**others+160, created+done+answered
	}
	slices.Sort(usual)
	slices.Sort(meanwhile)
	p99 := func(took []time.Duration) time.Duration { return took[len(took)*99/100] }
	t.Logf("other keys: p50 %s, p99 %s; before p50 %s, p99 %s; %.2f times", meanwhile[len(meanwhile)/2], p99(meanwhile), usual[len(usual)/2],
		p99(usual), float64(p99(meanwhile))/float64(p99(usual)))
	if got := e.settleInOrder(recoverLimit); got < created || got > sent {
		t.Errorf("%d transactions are committed, %d of %d were answered so", got, created, sent)
	}
}

// whileStuck does something while 160 requests of one key come, and the first of them hangs. It returns how many of them
// were committed in the end.
func (e *env) whileStuck(replicas []*service, turn int, do func()) (created int) {
	e.t.Helper()
	release := e.hold("stuck")
	defer release()
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := make(map[int]int)
	for i := range 160 {
		wg.Go(func() {
			a, err := replicas[i%2].post("/v1/transactions", numbered("held", fmt.Sprintf("held-%d-%d", turn, i), "stuck"))
			if err != nil {
				e.t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[a.HTTPStatus]++
		})
	}
	await.Success(e.t, 15*time.Second, func() error { // 65 of each replica stay, 15 are refused
		mu.Lock()
		defer mu.Unlock()
		if got := answers[http.StatusTooManyRequests]; got != 30 {
			return fmt.Errorf("%d requests were refused, want 30", got)
		}
		return nil
	})
	var waiting int
	if err := e.db.QueryRow(e.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'txsvc' AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil || waiting != 2 {
		e.t.Errorf("%d connections wait for the stuck key, want one of each replica (%v)", waiting, err)
	}
	do()
	release()
	wg.Wait()
	if answers[http.StatusCreated] != 130 {
		e.t.Errorf("got %v, want 130 answers 201", answers)
	}
	return answers[http.StatusCreated]
}

// TestStuckKeyTimesOut: behind a hung transaction requests are answered in the kind's time, and nothing was changed.
func TestStuckKeyTimesOut(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  held: {topic: %s, ordered: true, timeout: 2s, local: {sql: "SELECT pg_advisory_xact_lock(hashtext(@shard_key)); %s"}}
`, e.topic, countSQL))
	replicas := e.replicas(2)
	release := e.hold("stuck")
	defer release()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			a, err := replicas[i%2].post("/v1/transactions", numbered("held", fmt.Sprint("held-", i), "stuck"))
			if err != nil || a.HTTPStatus != http.StatusServiceUnavailable {
				t.Errorf("got %d %s (%v), want 503", a.HTTPStatus, a.Raw, err)
			}
		})
	}
	wg.Wait()
	release()
	for i := range 10 {
		replicas[i%2].mustPost("/v1/transactions", numbered("held", fmt.Sprint("held-", i), "stuck"), http.StatusCreated)
	}
	if got := e.settleInOrder(recoverLimit); got != 10 {
		t.Errorf("%d transactions are committed, want 10", got)
	}
}

// TestOrderOutage: the broker is killed while three replicas work on few keys. The fault suite has all other outages under the
// same kinds.
func TestOrderOutage(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{})
	e.counted()
	replicas := e.replicas(3)
	created := load(t, replicas, []string{"half", "outbox", "fallback"}, 5, 100)
	done := make(chan int)
	go func() { done <- load(t, replicas, []string{"half", "outbox", "fallback"}, 5, 300) }()
	stack.Broker(0).Kill()
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Error(err)
	}
	created += <-done
	replicas[0].ready()
	if got := e.settleInOrder(60 * time.Second); got < created || got < 100 {
		t.Errorf("%d transactions are committed, %d were answered so", got, created)
	}
}
