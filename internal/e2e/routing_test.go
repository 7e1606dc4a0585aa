package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/devstack"
	"github.com/txsvc/txsvc/internal/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
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

// topicsChange has the changes of single topics beside each other: most of their time is waiting until they are noticed.
func (r *routes) topicsChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T){
		"queues are added":                            r.queuesAdded,
		"a broker is made read-only":                  r.readOnly,
		"queues are removed in two steps, under load": r.queuesRemoved,
		"a topic is deleted and created again":        r.topicDeleted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change(t)
		})
	}
}

func newRoutes(t *testing.T) *routes {
	t.Helper()
	stack := stacktest.Private(t, devstack.Options{Brokers: 2})
	r := &routes{
		env: newEnvOn(t, stack.DatabaseURL(), stack.Nameservers()), stack: stack, seen: make(map[string]queue),
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
	eventually(t, pickUp-time.Since(start), check)
	t.Logf("%s: noticed after %s", what, time.Since(start).Round(10*time.Millisecond))
}

// settled waits until nothing of the topics is pending, and checks that each committed transaction is visible once, in the
// queue of its row. What was found in a queue that was removed afterwards is not looked for again.
func (r *routes) settled(t *testing.T, topics ...string) {
	t.Helper()
	rows := make(map[string]queue)
	eventually(t, recoverLimit+10*time.Second, func() error {
		clear(rows)
		found, err := r.db.Query(context.Background(), `SELECT id, broker, queue_id, delivery FROM txsvc.transactions
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
	eventually(t, 10*time.Second, func() error {
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

// brokerKilled: keys of a broker that is away move, or are refused with the reason, as their selector says; the others go
// on. They are back where they were when the broker is.
func (r *routes) brokerKilled(t *testing.T) {
	all := keys(100)
	before := r.previews(t, r.replicas[0], "keep", all)
	start := time.Now()
	r.stack.Broker(1).Kill()
	refused := 0
	for _, a := range r.sendAll("move", all) { // at once: the broker's death is found by sending to it
		if a.HTTPStatus != http.StatusCreated {
			refused++
			if a.Code != "broker_unavailable" {
				t.Errorf("got %s, want it created or refused for its broker", a.Raw)
			}
		}
	}
	if refused > len(all)/10 { // name servers may need a moment
		t.Errorf("%d of %d requests were refused: those of the broker's keys did not go to the other", refused, len(all))
	}
	t.Logf("%d of %d requests were refused in the first %s", refused, len(all), time.Since(start).Round(time.Millisecond))
	since(t, start, "broker killed", func() error {
		for _, s := range r.replicas {
			if p := s.preview("move", "k"); p.Queues != queues {
				return fmt.Errorf("%d queues to choose from", p.Queues)
			}
		}
		return nil
	})
	for key, a := range r.sendAll("move", all) {
		if a.HTTPStatus != http.StatusCreated || a.Queue.Broker != "broker-a" {
			t.Errorf("%s: got %d %s, want it in a queue of broker-a", key, a.HTTPStatus, a.Raw)
		}
	}
	r.assertKept(t, before)
	// One that starts now knows the queues all the same.
	r.replicas = append(r.replicas, r.start().ready())
	r.assertKept(t, before)
	for _, s := range r.replicas[:2] {
		s.assertDegraded(t, "4 of 8 accepted queues are writable; missing broker-b:0-3; changed ")
		for _, topic := range []string{"move", "keep"} {
			if got := s.metric(`txsvc_route_changes_total{topic="` + topic + `"}`); got != 1 {
				t.Errorf("%s: %v changes are counted, want 1", topic, got)
			}
		}
		if got := strings.Count(s.log.String(), `"topic":"keep","before":"broker-a:0-3, broker-b:0-3","after":"broker-a:0-3"`); got != 1 {
			t.Errorf("the change was logged %d times, want once", got)
		}
	}
	if err := r.stack.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	start = time.Now() // it is registered, and may be known already
	since(t, start, "broker back", func() error {
		for _, s := range r.replicas {
			if got := r.previews(t, s, "keep", all); !maps.Equal(got, before) || s.preview("move", "k").Queues != 2*queues {
				return fmt.Errorf("keys are not where they were")
			}
		}
		return nil
	})
	for _, s := range r.replicas {
		s.ready()
	}
	eventually(t, pickUp+10*time.Second, func() error { // rocketmq-client-go looks for brokers every 30 s
		for key, a := range r.sendAll("keep", all) {
			if a.HTTPStatus != http.StatusCreated || a.Queue != before[key] {
				return fmt.Errorf("%s: got %d %s, want queue %v", key, a.HTTPStatus, a.Raw, before[key])
			}
		}
		return nil
	})
	r.replicas[2].stop()
	r.replicas = r.replicas[:2]
	r.settled(t, "move", "keep")
}

func (r *routes) previews(t *testing.T, s *service, topic string, keys []string) map[string]queue {
	t.Helper()
	found := make(map[string]queue)
	for _, key := range keys {
		if p := s.preview(topic, key); p.Status == http.StatusOK {
			found[key] = p.Queue
		}
	}
	return found
}

// assertKept: keys whose queue lives keep it; the others are refused, and told why.
func (r *routes) assertKept(t *testing.T, before map[string]queue) {
	t.Helper()
	refused := 0
	for key, a := range r.sendAll("keep", slices.Sorted(maps.Keys(before))) {
		q := before[key]
		if q.Broker == "broker-a" {
			if a.HTTPStatus != http.StatusCreated || a.Queue != q {
				t.Errorf("%s: got %d %s, want queue %v", key, a.HTTPStatus, a.Raw, q)
			}
			continue
		}
		refused++
		why := fmt.Sprintf("queue %s:%d of topic keep is not writable now, and the selector keeps its keys (on_change: refuse); nothing was changed", q.Broker, q.ID)
		if a.HTTPStatus != http.StatusServiceUnavailable || a.Code != "broker_unavailable" || a.Detail != why {
			t.Errorf("%s: got %d %s, want 503: %s", key, a.HTTPStatus, a.Raw, why)
		}
	}
	if refused == 0 {
		t.Error("no key had a queue on the broker that is away")
	}
}

// assertDegraded: /readyz is 200, and tells of the topic.
func (s *service) assertDegraded(t *testing.T, detail string) {
	t.Helper()
	response, err := http.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(response)
	if err != nil || a.HTTPStatus != http.StatusOK || !strings.Contains(a.Raw, `"status":"degraded"`) || !strings.Contains(a.Raw, detail) {
		t.Errorf("/readyz: got %d %s (%v), want it degraded, with %q", a.HTTPStatus, a.Raw, err, detail)
	}
}

// topicState is an answer of GET /v1/topics/{topic}/queues.
type topicState struct {
	Queues []struct {
		Broker                       string
		ID                           int
		Writable, Readable, Accepted bool
	}
	Accepted *struct {
		Version int64
		Pause   int64 `json:"pause_ms"`
	}
}

func (s *service) topic(t *testing.T, name string) (state topicState) {
	t.Helper()
	response, err := http.Get(s.url + "/v1/topics/" + name + "/queues")
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(response)
	if err == nil {
		err = json.Unmarshal([]byte(a.Raw), &state)
	}
	if err != nil || a.HTTPStatus != http.StatusOK {
		t.Fatalf("queues of %s: %d %s (%v)", name, a.HTTPStatus, a.Raw, err)
	}
	return state
}

// queuesAdded: new queues are used at once by a selector that remaps, and by one that refuses not before they are
// accepted.
func (r *routes) queuesAdded(t *testing.T) {
	all := keys(100)
	before := r.previews(t, r.replicas[0], "keepgrow", all)
	start := time.Now()
	r.create(t, "grow", queues+2)
	r.create(t, "keepgrow", queues+2)
	since(t, start, "queues added", func() error {
		for _, s := range r.replicas {
			if n := s.preview("grow", "k").Queues; n != 2*(queues+2) {
				return fmt.Errorf("%d queues to choose from", n)
			}
			if n := len(s.topic(t, "keepgrow").Queues); n != 2*(queues+2) {
				return fmt.Errorf("%d queues of keepgrow are known", n)
			}
		}
		return nil
	})
	fresh := 0
	for key, a := range r.sendAll("grow", all) {
		if a.HTTPStatus != http.StatusCreated {
			t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
		}
		if a.Queue.ID >= queues {
			fresh++
		}
	}
	if fresh == 0 {
		t.Error("no key uses a new queue")
	}
	for key, a := range r.sendAll("keepgrow", all) {
		if a.HTTPStatus != http.StatusCreated || a.Queue != before[key] {
			t.Errorf("%s: got %d %s, want queue %v", key, a.HTTPStatus, a.Raw, before[key])
		}
	}
	for _, q := range r.replicas[0].topic(t, "keepgrow").Queues {
		if !q.Writable || !q.Readable || q.Accepted != (q.ID < queues) {
			t.Errorf("got %+v", q)
		}
	}
	r.accepted(t, before)
	r.settled(t, "grow", "keepgrow")
}

// sighting is where a replica sent a key, some time between two moments.
type sighting struct {
	key          string
	queue        queue // without a broker: it was refused
	began, ended time.Time
}

// accepted: when an operator accepts the new queues, keys that stay go on all the time. Those that move are refused for a
// while, by all replicas: none sends a key to its new queue before the last has stopped sending it to the old one.
func (r *routes) accepted(t *testing.T, before map[string]queue) {
	t.Helper()
	if out := r.command(t, "route", "accept", "keepgrow", "--dry-run"); !strings.Contains(out, "before  broker-a:0-3, broker-b:0-3 (version 1)\nafter   broker-a:0-5, broker-b:0-5\n") ||
		!strings.Contains(out, "of kind keepgrow (hash, 10000 made-up keys)") {
		t.Errorf("--dry-run printed:\n%s", out)
	}
	watched := slices.Sorted(maps.Keys(before))[:20]
	stop, seen := make(chan struct{}), make(chan []sighting, len(r.replicas))
	for _, s := range r.replicas {
		go func() {
			var all []sighting
			for {
				for _, key := range watched {
					began := time.Now()
					a := s.send("keepgrow", key)
					all = append(all, sighting{key, a.Queue, began, time.Now()})
				}
				select {
				case <-stop:
					seen <- all
					return
				default:
				}
			}
		}()
	}
	start := time.Now()
	if out := r.command(t, "route", "accept", "keepgrow", "--pause", "10s"); !strings.Contains(out, "accepted as version 2; in use in 10s") {
		t.Errorf("it printed:\n%s", out)
	}
	since(t, start, "queues accepted and in use", func() error {
		for _, s := range r.replicas {
			if a := s.topic(t, "keepgrow").Accepted; a == nil || a.Version != 2 || a.Pause > 0 {
				return fmt.Errorf("version 2 is not in use yet: %+v", a)
			}
		}
		return nil
	})
	after := r.previews(t, r.replicas[0], "keepgrow", watched)
	eventually(t, pickUp, func() error { // the last look at each is of the new list
		for _, key := range watched {
			if p := r.replicas[1].preview("keepgrow", key); p.Queue != after[key] {
				return fmt.Errorf("%s: replicas disagree", key)
			}
		}
		return nil
	})
	close(stop)
	var all []sighting
	for range r.replicas {
		all = append(all, <-seen...)
	}
	assertMovedOnce(t, all, before, after)
}

func assertMovedOnce(t *testing.T, all []sighting, before, after map[string]queue) {
	t.Helper()
	lastOld, firstNew, refused := make(map[string]time.Time), make(map[string]time.Time), 0
	for _, s := range all {
		from, to := before[s.key], after[s.key]
		switch {
		case from == to:
			if s.queue != from {
				t.Errorf("%s, which stays in %v, went to %v", s.key, from, s.queue)
			}
		case s.queue.Broker == "":
			refused++
		case s.queue == from:
			if s.began.After(lastOld[s.key]) {
				lastOld[s.key] = s.began
			}
		case s.queue == to:
			if first, ok := firstNew[s.key]; !ok || s.ended.Before(first) {
				firstNew[s.key] = s.ended
			}
		default:
			t.Errorf("%s went to %v, want %v or %v", s.key, s.queue, from, to)
		}
	}
	for key, first := range firstNew {
		if !lastOld[key].Before(first) {
			t.Errorf("%s went to its old queue %s after it had gone to its new one", key, lastOld[key].Sub(first))
		}
	}
	if refused == 0 || len(firstNew) == 0 {
		t.Errorf("%d requests were refused, %d keys moved, want some", refused, len(firstNew))
	}
	t.Logf("%d requests: %d keys moved, %d requests refused meanwhile", len(all), len(firstNew), refused)
}

// command runs txsvc with the environment of the services.
func (r *routes) command(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "TXSVC_DATABASE_URL="+r.databaseURL, "TXSVC_NAMESERVERS="+strings.Join(r.nameservers, ","), "TXSVC_CONFIG="+r.config)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("txsvc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// readOnly: a broker whose queues of the topic must not be written is left out; what is in them stays readable, also what
// was on its way.
func (r *routes) readOnly(t *testing.T) {
	all := keys(100)
	start := time.Now()
	r.change(t, "readonly", remoting.QueueData{Broker: "broker-b", Read: queues, Write: queues, Perm: remoting.PermRead})
	since(t, start, "read-only", func() error {
		for key, a := range r.sendAll("readonly", all) {
			if a.HTTPStatus != http.StatusCreated || a.Queue.Broker != "broker-a" {
				return fmt.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
			}
		}
		return nil
	})
	for _, q := range r.replicas[0].topic(t, "readonly").Queues {
		if q.Writable != (q.Broker == "broker-a") || !q.Readable {
			t.Errorf("got %+v", q)
		}
	}
	r.settled(t, "readonly")
}

func (r *routes) change(t *testing.T, topic string, share remoting.QueueData) {
	t.Helper()
	if err := r.mq.ChangeTopic(t.Context(), topic, share); err != nil {
		t.Fatal(err)
	}
}

// queuesRemoved: an operator removes queues as RocketMQ wants it, first for writing, then, when they are read, for
// reading. Nothing is lost under load, and no request fails.
func (r *routes) queuesRemoved(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	sent := 0
	go func() {
		defer close(stopped)
		for {
			for key, a := range r.sendAll("shrink", keys(50)) {
				sent++
				if a.HTTPStatus != http.StatusCreated {
					t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	const left = 1
	both := remoting.PermRead | remoting.PermWrite
	start := time.Now()
	for i := range 2 {
		r.change(t, "shrink", remoting.QueueData{Broker: devstack.BrokerName(i), Read: queues, Write: left, Perm: both})
	}
	since(t, start, "fewer queues to write", func() error {
		for _, s := range r.replicas {
			if n := s.preview("shrink", "k").Queues; n != 2*left {
				return fmt.Errorf("%d queues to choose from", n)
			}
		}
		return nil
	})
	// What was routed before the change is read now; then nothing is in the queues that go.
	eventually(t, recoverLimit, func() error {
		var pending int
		err := r.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.transactions
			WHERE delivery = 'pending' AND topic = 'shrink' AND queue_id >= $1`, left).Scan(&pending)
		if err == nil && pending > 0 {
			err = fmt.Errorf("%d messages are pending in the queues that go", pending)
		}
		return err
	})
	found := make(map[string][]queue)
	eventually(t, 10*time.Second, func() error { clear(found); return r.read("shrink", found) })
	start = time.Now()
	for i := range 2 {
		r.change(t, "shrink", remoting.QueueData{Broker: devstack.BrokerName(i), Read: left, Write: left, Perm: both})
	}
	since(t, start, "fewer queues to read", func() error {
		for _, s := range r.replicas {
			if n := len(s.topic(t, "shrink").Queues); n != 2*left {
				return fmt.Errorf("%d queues are known", n)
			}
		}
		return nil
	})
	close(stop)
	<-stopped
	for id, where := range found {
		if len(where) != 1 {
			t.Errorf("%s is visible in %v", id, where)
		}
	}
	r.saw(found)
	t.Logf("%d transactions were sent while the queues were removed", sent)
	r.settled(t, "shrink")
}

// topicDeleted: a topic that is deleted is noticed, without traffic at one replica and with it at the other, and used
// again when it is there again.
func (r *routes) topicDeleted(t *testing.T) {
	names := []string{"gone", "keepgone"}
	for _, topic := range names {
		for key, a := range r.sendAll(topic, keys(20)) {
			if a.HTTPStatus != http.StatusCreated {
				t.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
			}
		}
	}
	r.settled(t, names...)
	found := make(map[string][]queue)
	for _, topic := range names {
		if err := r.read(topic, found); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, topic := range names {
		if err := r.mq.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	r.saw(found) // and deleted with the topic
	for topic, why := range map[string]string{"gone": "topic gone does not exist", "keepgone": "is not writable now"} {
		for i := range 5 { // from the first request on: the broker refuses it, and then it is known
			if a := r.replicas[0].send(topic, fmt.Sprint(i)); a.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(a.Detail, why) {
				t.Errorf("%s: got %d %s, want 503 with %q", topic, a.HTTPStatus, a.Raw, why)
			}
		}
	}
	since(t, start, "topic deleted, without traffic", func() error {
		response, err := http.Get(r.replicas[1].url + "/readyz")
		if err != nil {
			return err
		}
		a, err := read(response)
		if a.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(a.Raw, "topic gone does not exist") ||
			!strings.Contains(a.Raw, "topic keepgone does not exist") {
			return fmt.Errorf("/readyz: %d %s (%v)", a.HTTPStatus, a.Raw, err)
		}
		return nil
	})
	start = time.Now()
	for _, topic := range names {
		r.create(t, topic, queues)
	}
	since(t, start, "topic created again", func() error {
		for _, topic := range names {
			for key, a := range r.sendAll(topic, keys(20)) {
				if a.HTTPStatus != http.StatusCreated {
					return fmt.Errorf("%s: got %d %s", key, a.HTTPStatus, a.Raw)
				}
			}
		}
		return nil
	})
	r.settled(t, names...)
}

// pendingRemoved: all replicas are dead while the queues of committed, undelivered messages are removed. Each message is
// delivered once, to a queue that is there; those of a key with ordered: true in the order of their commits.
func (r *routes) pendingRemoved(t *testing.T) {
	for _, s := range r.replicas {
		s.stop()
	}
	const each = 20 // messages of each topic: two replicas send one per key
	topics := []string{"half", "lined", "boxed"}
	var dying []*service
	var wg sync.WaitGroup
	for i := range 2 {
		s := r.start(fmt.Sprintf("TXSVC_FAILPOINT=committed@%d", each/2*len(topics))).ready()
		dying = append(dying, s)
		for _, topic := range topics {
			for _, key := range keys(each / 2) {
				body := fmt.Sprintf(`{"kind": %q, "id": "%[1]s-%[2]s-%[3]d", "shard_key": %[2]q, "payload": {}}`, topic, key, i)
				wg.Go(func() { // until the process dies; a machine that is too busy says 503 first
					for {
						if _, err := s.post("/v1/transactions", body); err != nil {
							return
						}
					}
				})
			}
		}
	}
	wg.Wait()
	for _, s := range dying {
		s.awaitDeath()
	}
	found := make(map[string][]queue)
	for _, topic := range topics { // the relay has sent some that have no half message; the marks of a few are lost
		if err := r.read(topic, found); err != nil {
			t.Fatal(err)
		}
	}
	r.saw(found)
	count := func(where string) (n int) {
		t.Helper()
		err := r.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.transactions
			WHERE topic = ANY ($1) AND NOT id = ANY ($2) AND `+where, topics, slices.Collect(maps.Keys(found))).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const left = 1
	pending, removed := count(`delivery = 'pending'`), count(fmt.Sprintf(`delivery = 'pending' AND queue_id >= %d`, left))
	if pending < 2*each || removed < pending/2 {
		t.Fatalf("%d messages are pending, %d of them in queues that go; want %d, and most of them", pending, removed, each*len(topics))
	}
	t.Logf("%d messages are pending, %d of them in queues that go", pending, removed)
	for _, topic := range topics {
		for i := range 2 {
			r.change(t, topic, remoting.QueueData{Broker: devstack.BrokerName(i), Read: left, Write: left, Perm: remoting.PermRead | remoting.PermWrite})
		}
	}
	s := r.start().ready()
	r.replicas = []*service{s}
	r.settled(t, topics...)
	if n := count(fmt.Sprintf(`queue_id >= %d`, left)); n != 0 {
		t.Errorf("%d rows still name a queue that was removed", n)
	}
	if got := strings.Count(s.log.String(), "the queue of a message that waits was removed"); got != removed {
		t.Errorf("%d messages are told to have got another queue, want %d", got, removed)
	}
	if got := s.metric(`txsvc_deliveries_total{path="resolver",result="rerouted"}`) + s.metric(`txsvc_deliveries_total{path="relay",result="rerouted"}`); got != float64(removed) {
		t.Errorf("%v are counted, want %d", got, removed)
	}
	if got := s.metric("txsvc_duplicates_suspected_total"); got != 0 {
		t.Errorf("%v duplicates are suspected, want none", got)
	}
	r.assertLines(t, "lined")
}

// assertLines: messages of a key are in the order of their places.
func (r *routes) assertLines(t *testing.T, topic string) {
	t.Helper()
	one := *r.env
	one.topic = topic
	found, err := one.readTopic()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := r.db.Query(context.Background(), `SELECT id, shard_key FROM txsvc.transactions WHERE topic = $1 ORDER BY line`, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last := make(map[string]int64)
	for rows.Next() {
		var id, key string
		if err := rows.Scan(&id, &key); err != nil {
			t.Fatal(err)
		}
		offset := found[id][0].QueueOffset
		if before, ok := last[key]; ok && offset < before {
			t.Errorf("%s of key %s is at %d, and the one before it at %d", id, key, offset, before)
		}
		last[key] = offset
	}
	if err := rows.Err(); err != nil || len(last) == 0 {
		t.Errorf("%d keys (%v)", len(last), err)
	}
}
