package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// pickUp is how long a change of a topic may go unnoticed.
const pickUp = 30 * time.Second

// routes is a stack of two brokers with two replicas of the service, one for each transport. Each of its topics has a kind of the same name; the
// names of those whose selector keeps keys (on_change: refuse) begin with "keep".
type routes struct {
	*env
	stack    *devstack.Stack
	replicas []*service
	topics   []string

	mu   sync.Mutex
	seen map[string]queue // ids that were found where they belong, before their queue was removed
}

// saw notes what was found in queues that are removed afterwards.
func (r *routes) saw(found map[string][]queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, where := range found {
		r.seen[id] = where[0]
	}
}

// TestRoutes changes topics and brokers step by step. Every step ends with reading the topics: what was committed is
// visible once, in the queue that its row names.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r := newRoutes(t)
	steps := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"replicas agree", r.replicasAgree},
		{"a broker is killed and comes back", r.brokerKilled},
		{"topics change", r.topicsChange},
		{"queues are removed under pending messages", r.pendingRemoved},
	}
	for _, step := range steps {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

func newRoutes(t *testing.T) *routes {
	t.Helper()
	stack := stacktest.Private(t, devstack.Options{Brokers: 2, BrokerConfig: map[string]string{"timerWheelEnable": "true"}}) // else it deletes no topic
	r := &routes{
		env: newEnvMigrating(t, stack.DatabaseURL(), stack.Nameservers()), stack: stack, seen: make(map[string]queue),
		topics: []string{"move", "keep", "grow", "keepgrow", "readonly", "shrink", "gone", "keepgone", "half", "lined", "boxed"},
	}
	var config strings.Builder
	config.WriteString("kinds:\n")
	for _, topic := range r.topics {
		r.create(t, topic, queues)
		onChange := "remap"
		if strings.HasPrefix(topic, "keep") {
			onChange = "refuse"
		}
		fmt.Fprintf(&config, "  %[1]s:\n    topic: %[1]s\n    selector: {type: hash, on_change: %[2]s}\n    timeout: 20s\n    local: {sql: SELECT @id AS id}\n%[3]s",
			topic, onChange, map[string]string{"lined": "    ordered: true\n", "boxed": "    delivery: outbox\n"}[topic])
	}
	r.config = r.writeConfig(config.String())
	for _, r.transport = range transports { // the last one is also that of those that start later
		r.replicas = append(r.replicas, r.start().ready())
	}
	return r
}

func (r *routes) create(t *testing.T, topic string, queues int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pickUp)
	defer cancel()
	if err := r.mq.CreateTopic(ctx, topic, queues); err != nil {
		t.Fatal(err)
	}
}

// preview is an answer of POST /v1/routes/preview.
type preview struct {
	Status int
	Queue  queue
	Queues int
	Reason string
	Detail string
}

func (s *service) preview(topic, key string) preview {
	s.t.Helper()
	body := fmt.Sprintf(`{"topic": %q, "shard_key": %q}`, topic, key)
	response, err := http.Post(s.url+"/v1/routes/preview", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := checkContract(response, text); err != nil {
		s.t.Fatal(err)
	}
	p := preview{Status: response.StatusCode}
	if err := json.Unmarshal(text, &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func keys(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("customer-%d", i)
	}
	return list
}

// send posts one transaction of the topic's kind.
func (s *service) send(topic, key string) answer {
	s.t.Helper()
	a, err := s.post("/v1/transactions", fmt.Sprintf(`{"kind": %q, "shard_key": %q, "payload": {"key": %[2]q}}`, topic, key))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// sendAll posts one transaction per key, to the replicas in turn, some at a time.
func (r *routes) sendAll(topic string, keys []string) map[string]answer {
	answers, mu := make(map[string]answer, len(keys)), sync.Mutex{}
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a := r.replicas[i%len(r.replicas)].send(topic, key)
			mu.Lock()
			defer mu.Unlock()
			answers[key] = a
		})
	}
	wg.Wait()
	return answers
}

// since polls until check succeeds, and logs how long a change took to be noticed.
func since(t *testing.T, start time.Time, what string, check func() error) {
	t.Helper()
	await.Success(t, pickUp-time.Since(start), check)
	t.Logf("%s: noticed after %s", what, time.Since(start).Round(10*time.Millisecond))
}

// settled waits until nothing of the topics is pending, and checks that each committed transaction is visible once, in the
// queue of its row. What was found in a queue that was removed afterwards is not looked for again.
func (r *routes) settled(t *testing.T, topics ...string) {
	t.Helper()
	rows := make(map[string]queue)
	await.Success(t, recoverLimit+10*time.Second, func() error {
		clear(rows)
		found, err := r.db.Query(context.Background(), `SELECT id, broker, queue_id, delivery FROM txsvc.current
			WHERE state = 'committed' AND topic = ANY ($1)`, topics)
		if err != nil {
			return err
		}
		defer found.Close()
		pending := 0
		for found.Next() {
			var id, delivery string
			var q queue
			if err := found.Scan(&id, &q.Broker, &q.ID, &delivery); err != nil {
				return err
			}
			if delivery != "delivered" {
				pending++
			}
			rows[id] = q
		}
		if pending > 0 {
			return fmt.Errorf("%d of %d transactions are not delivered", pending, len(rows))
		}
		return found.Err()
	})
	r.mu.Lock()
	seen := maps.Clone(r.seen)
	r.mu.Unlock()
	for id := range seen {
		delete(rows, id)
	}
	visible := make(map[string][]queue)
	await.Success(t, 10*time.Second, func() error {
		clear(visible)
		for _, topic := range topics {
			if err := r.read(topic, visible); err != nil {
				return err
			}
		}
		for id, q := range rows {
			if len(visible[id]) == 0 {
				return fmt.Errorf("%s, delivered to %v, is not visible", id, q)
			}
		}
		return nil
	})
	for id, q := range rows {
		if got := visible[id]; len(got) != 1 || got[0] != q {
			t.Errorf("%s is visible in %v, want once, in %v", id, got, q)
		}
	}
	for id, where := range visible {
		if _, ok := rows[id]; !ok && seen[id] != where[0] {
			t.Errorf("%s is visible in %v and not committed", id, where)
		}
	}
	t.Logf("%d committed transactions are visible, each once, in the queue of its row", len(rows))
}

// read adds what is visible in the topic, by transaction id.
func (r *routes) read(topic string, into map[string][]queue) error {
	one := *r.env
	one.topic = topic
	found, err := one.readTopic()
	if remoting.IsCode(err, remoting.CodeTopicNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for id, copies := range found {
		for _, m := range copies {
			// The store's host tells the brokers apart.
			into[id] = append(into[id], queue{r.brokerAt(m.StoreHost.String()), int(m.QueueID)})
		}
	}
	return nil
}

func (r *routes) brokerAt(addr string) string {
	for _, b := range r.mq.Status().Brokers {
		if b.Addr == addr {
			return b.Name
		}
	}
	return addr
}

// replicasAgree: all replicas send a key to one queue, with a transaction or as the preview says.
func (r *routes) replicasAgree(t *testing.T) {
	const count = 1000
	for _, topic := range []string{"move", "keep"} {
		brokers := make(map[string]int)
		for _, key := range keys(count) {
			want := r.replicas[0].preview(topic, key)
			if got := r.replicas[1].preview(topic, key); got != want || got.Status != http.StatusOK || got.Queues != 2*queues {
				t.Fatalf("%s in %s: replica 1 says %+v, replica 0 %+v", key, topic, got, want)
			}
			brokers[want.Queue.Broker]++
		}
		if brokers["broker-a"]+brokers["broker-b"] != count || min(brokers["broker-a"], brokers["broker-b"]) < count/3 {
			t.Errorf("%s: keys are spread over %v", topic, brokers)
		}
		for key, a := range r.sendAll(topic, keys(100)) {
			if want := r.replicas[0].preview(topic, key); a.HTTPStatus != http.StatusCreated || a.Queue != want.Queue {
				t.Errorf("%s in %s: got %d %s, want queue %v", key, topic, a.HTTPStatus, a.Raw, want.Queue)
			}
		}
	}
	key := keys(1)[0]
	want := r.replicas[0].preview("move", key)
	if out := r.command(t, "route", "move", "--key", key); !strings.Contains(out, fmt.Sprintf("queue     %s:%d\n", want.Queue.Broker, want.Queue.ID)) ||
		!strings.Contains(out, want.Reason) {
		t.Errorf("txsvc route printed:\n%s\nwant %+v", out, want)
	}
	r.settled(t, "move", "keep")
}
