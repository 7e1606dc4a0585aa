package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// awaitDelivery polls the transaction until it is delivered.
func (s *service) awaitDelivery(id string) answer {
	s.t.Helper()
	var a answer
	await.Success(s.t, recoverLimit, func() (err error) {
		if a, err = s.get(id); err == nil && a.Delivery != "delivered" {
			err = fmt.Errorf("%s is %s", id, a.Raw)
		}
		return err
	})
	return a
}

// one returns the only message of the transaction.
func (e *env) one(id string) remoting.Message {
	e.t.Helper()
	var found []remoting.Message
	await.Success(e.t, 10*time.Second, func() error {
		if found = e.visible()[id]; len(found) != 1 {
			return fmt.Errorf("%s is visible %d times", id, len(found))
		}
		return nil
	})
	return found[0]
}

// TestOutbox: the answer is committed and pending, the message follows, and looks as one that had a half message.
func TestOutbox(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	s := e.start().ready()
	fields := `"tag": "t", "keys": ["k1"], "properties": {"p": "q"}, "shard_key": "k", "payload": {"a":  1}`
	a := s.mustPost("/v1/transactions", `{"kind": "unordered", "id": "outbox-1", `+fields+`}`, http.StatusCreated)
	if a.State != "committed" || a.Delivery != "pending" || string(a.Result) != `{"n":1}` {
		t.Errorf("got %s, want committed, pending, with its result", a.Raw)
	}
	delivered := s.awaitDelivery("outbox-1")
	if again := s.mustPost("/v1/transactions", `{"kind": "unordered", "id": "outbox-1", `+fields+`}`, http.StatusCreated); !again.Replayed || again.Delivery != "delivered" {
		t.Errorf("the request again: got %s", again.Raw)
	}
	s.mustPost("/v1/transactions", `{"kind": "half", "id": "half-1", `+fields+`}`, http.StatusCreated)
	got, want := e.one("outbox-1"), e.one("half-1")
	if got.UniqKey() != delivered.MessageID || int(got.QueueID) != delivered.Queue.ID || string(got.Body) != `{"a":  1}` {
		t.Errorf("got message %s in queue %d with %s; the answer said %s", got.UniqKey(), got.QueueID, got.Body, delivered.Raw)
	}
	if diff := cmp.Diff(seen(want), seen(got)); diff != "" {
		t.Errorf("properties that consumers see (-with a half message +without):\n%s", diff)
	}
	if body := string(e.bodyOf(s, "outbox", "result-1")); body != `{"n":3}` {
		t.Errorf("body: result: got %s", body)
	}
}

// bodyOf posts a request and returns the body of its message.
func (e *env) bodyOf(s *service, kind, id string) []byte {
	e.t.Helper()
	s.mustPost("/v1/transactions", numbered(kind, id, "k"), http.StatusCreated)
	return e.one(id).Body
}

// seen is what is the same for two messages of two requests that differ in kind and id; where the message was stored
// before it became visible is the broker's own business.
func seen(m remoting.Message) map[string]string {
	properties := make(map[string]string)
	for _, p := range m.Properties {
		value := strings.ReplaceAll(p.Value, m.UniqKey(), "UNIQ_KEY")
		value = strings.NewReplacer("half-1", "ID", "outbox-1", "ID", "unordered", "KIND", "half", "KIND").Replace(value)
		properties[p.Name] = value
	}
	for _, own := range []string{"TRAN_MSG", "REAL_TOPIC", "REAL_QID", "WAIT", "TRANSACTION_PREPARED", "INNER_NUM", "CLUSTER"} {
		delete(properties, own)
	}
	return properties
}

var (
	backlogRows = flag.Int("backlog", 2000, "rows of the backlog in TestBacklogIsShared")
	relaying    = flag.Int("relaying", 2, "replicas that deliver it")
)

// TestBacklogIsShared: rows that come at once are delivered by two replicas, each once, while requests go on. Its log has the
// rates:
//
//	go test -run TestBacklogIsShared -v ./internal/tools/e2e -backlog 1000000 -relaying 1
func TestBacklogIsShared(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	rows, replicas := *backlogRows, e.replicas(*relaying)
	_, err := e.db.Exec(t.Context(), `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id,
			selector, reason, uniq_key, commit_log_offset, queue_offset, body, result, created_at, decided_at, lease_until, outbox, ordered, line)
		SELECT 'row-' || n, 'k', 'committed', 'pending', 'key-' || n % 50, $2, '', 'broker-a', n % 50 % 4, '', '',
			upper(md5(n::text)), -1, -1, '{}', json_build_object('n', n), now(), now(), now(), true, n % 50 < 10, CASE WHEN n % 50 < 10 THEN n END
		FROM generate_series(1, $1::int) AS n`, rows, e.topic)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	created, took := 0, time.Duration(0)
	for left := rows; left > 0; { // requests go on meanwhile
		begin := time.Now()
		created += load(t, replicas, []string{"unordered"}, 10, 50)
		took += time.Since(begin)
		if err := e.db.QueryRow(t.Context(), `SELECT count(*) FROM txsvc.current WHERE delivery = 'pending'`).Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows were drained in %s, %.0f a second, while %d requests were answered, %.0f a second", rows, time.Since(start).Round(time.Millisecond),
		float64(rows)/time.Since(start).Seconds(), created, float64(created)/took.Seconds())
	if got := e.settleInOrder(60 * time.Second); got != rows+created {
		t.Errorf("%d messages are delivered, want %d", got, rows+created)
	}
	for _, s := range replicas {
		if got := s.metric(`txsvc_deliveries_total{path="relay",result="delivered"`); got == 0 {
			t.Error("one of the replicas delivered nothing")
		}
	}
}

// TestFallback: the broker is killed and started, and then stopped. Requests are committed all the time; their messages follow,
// once each and in the order of their keys. A broker that is stopped, and does not say so, holds up the first requests only.
func TestFallback(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
	e.counted()
	replicas := e.replicas(2)
	const each = 100
	created := load(t, replicas, []string{"fallback"}, 5, each)
	stack.Broker(0).Kill()
	created += load(t, replicas, []string{"fallback"}, 5, each)
	if a := replicas[0].mustPost("/v1/transactions", numbered("half", "half-1", "key-1"), http.StatusServiceUnavailable); a.Code != "broker_unavailable" {
		t.Errorf("without fallback: got %s", a.Raw)
	}
	if got := replicas[0].metric("txsvc_in_flight "); got != 0 {
		t.Errorf("%v requests are in flight", got)
	}
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	replicas[0].ready()
	created += load(t, replicas, []string{"fallback", "half"}, 5, each)

	stack.Broker(0).Pause()
	created += load(t, replicas[:1], []string{"fallback"}, 40, 40)
	start := time.Now()
	if got := load(t, replicas[:1], []string{"fallback"}, 40, 40); got != 40 || time.Since(start) > 3*time.Second {
		t.Errorf("%d of 40 requests were answered 201, in %s; the broker is known to be silent", got, time.Since(start))
	}
	created += 40
	stack.Broker(0).Resume()
	if got := e.settleInOrder(60 * time.Second); got != created || created < 2*each+80 {
		t.Errorf("%d transactions are committed, %d of %d were answered so", got, created, 3*each+80)
	}
}

// TestUndeliverable: a message that the broker does not take is put aside, and says so; its neighbours are delivered, those
// behind it in its line when it is.
func TestUndeliverable(t *testing.T) {
	t.Parallel()
	e, _ := newPrivateEnv(t, devstack.Options{BrokerConfig: map[string]string{"maxMessageSize": "65536"}})
	e.config = e.writeConfig(strings.ReplaceAll(fmt.Sprintf(sizedKinds, e.topic), "\t", "  "))
	s := e.start().ready()
	post := func(kind, id, key string, size int) {
		t.Helper()
		body := fmt.Sprintf(`{"kind": %q, "id": %q, "shard_key": %q, "payload": {"size": %d}}`, kind, id, key, size)
		await.Success(t, recoverLimit, func() error { // a loaded machine may time out
			if a, err := s.post("/v1/transactions", body); err != nil || a.HTTPStatus != http.StatusCreated {
				return fmt.Errorf("%s: got %s (%v)", id, a.Raw, err)
			}
			return nil
		})
	}
	var wg sync.WaitGroup
	for c := range 8 { // in some batches with the large ones
		wg.Go(func() {
			for i := range 5 {
				post([]string{"line", "free"}[i%2], fmt.Sprint("small-", c*5+i), fmt.Sprint("k-", i), 10)
			}
		})
	}
	post("line", "large-line", "k", 100_000)
	post("free", "large-free", "k", 100_000)
	post("line", "huge", "other", 4_000_000)
	post("line", "behind", "k", 10)
	wg.Wait()
	parked := func(id string) {
		t.Helper()
		await.Success(t, recoverLimit, func() error {
			a, err := s.get(id)
			if err != nil || a.Delivery != "pending" || !strings.Contains(a.Raw, `"error":{"code":"undeliverable"`) {
				return fmt.Errorf("%s: got %s (%v)", id, a.Raw, err)
			}
			return nil
		})
	}
	for _, id := range []string{"large-line", "large-free", "huge"} {
		parked(id)
	}
	for i := range 40 {
		s.awaitDelivery(fmt.Sprint("small-", i))
	}
	await.Success(t, recoverLimit, func() error {
		if got := s.metric("txsvc_delivery_parked"); got != 3 {
			return fmt.Errorf("txsvc_delivery_parked is %v, want 3", got)
		}
		return nil
	})
	redeliver := func(id string, status int) { s.mustPost("/v1/transactions/"+id+"/redeliver", "", status) }
	redeliver("large-line", http.StatusAccepted)
	parked("large-line")
	if a, err := s.get("behind"); err != nil || a.Delivery != "pending" || strings.Contains(a.Raw, "undeliverable") {
		t.Errorf("behind: got %s (%v), want it to wait", a.Raw, err)
	}
	// An operator shortens what cannot be delivered.
	if _, err := e.db.Exec(t.Context(), `UPDATE txsvc.transactions SET body = '{"n": 1}' WHERE id LIKE 'large-%' OR id = 'huge'`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, id := range []string{"large-line", "large-free", "huge", "small-1"} {
			redeliver(id, http.StatusAccepted)
		}
	}
	redeliver("nobody", http.StatusNotFound)
	for _, id := range []string{"large-line", "large-free", "huge", "behind"} {
		s.awaitDelivery(id)
	}
	if got := e.settleInOrder(recoverLimit); got != 44 {
		t.Errorf("%d transactions are delivered, want 44", got)
	}
	line := []remoting.Message{e.one("large-line"), e.one("behind")}
	if line[0].QueueOffset > line[1].QueueOffset {
		t.Error("what was behind the large message is visible before it")
	}
}

const sizedKinds = `
kinds:
	line: {topic: %[1]s, ordered: true, delivery: outbox, body: result, result_limit: 4MiB, local: {sql: "SELECT 1 AS n, repeat('x', (@payload->>'size')::int) AS filling"}}
	free: {topic: %[1]s, delivery: outbox, body: result, result_limit: 4MiB, local: {sql: "SELECT 1 AS n, repeat('x', (@payload->>'size')::int) AS filling"}}
`

// TestBadTopic: messages to a topic that is not there wait, and say so; those to others are delivered meanwhile, and they
// are, too, when the topic is there.
func TestBadTopic(t *testing.T) {
	t.Parallel()
	e := newEnv(t).counted()
	s := e.start().ready()
	_, err := e.db.Exec(context.Background(), `INSERT INTO txsvc.transactions (id, kind, state, delivery, shard_key, topic, tag, broker, queue_id,
			selector, reason, uniq_key, commit_log_offset, queue_offset, body, created_at, decided_at, lease_until, outbox)
		SELECT 'lost-' || n, 'k', 'committed', 'pending', 'k', $1, '', 'broker-a', 0, '', '', upper(md5(n::text)), -1, -1, '{}', now(), now(), now(), true
		FROM generate_series(1, 1000) AS n`, e.topic+"-never")
	if err != nil {
		t.Fatal(err)
	}
	load(t, []*service{s}, []string{"unordered", "outbox"}, 5, 100)
	await.Success(t, recoverLimit, func() error {
		a, err := s.get("lost-1")
		if err != nil || !strings.Contains(a.Raw, `"error":{"code":"delayed"`) || !strings.Contains(a.Raw, "does not exist") {
			return fmt.Errorf("got %s (%v)", a.Raw, err)
		}
		return nil
	})
	awaitNone := func(topic string, limit time.Duration) {
		t.Helper()
		await.Success(t, limit, func() error {
			var pending int
			err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current WHERE delivery = 'pending' AND topic = $1`, topic).Scan(&pending)
			if err != nil || pending > 0 {
				return fmt.Errorf("%d messages to %s are pending (%v)", pending, topic, err)
			}
			return nil
		})
	}
	awaitNone(e.topic, recoverLimit)
	if err := e.mq.CreateTopic(t.Context(), e.topic+"-never", queues); err != nil {
		t.Fatal(err)
	}
	s.mustPost("/v1/transactions/lost-1/redeliver", "", http.StatusAccepted)
	awaitNone(e.topic+"-never", recoverLimit)
}
