package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

const slaveKinds = `
topics:
  %[1]s: {}
  %[1]s-plain: {}
kinds:
  refused: {topic: %[1]s, local: {sql: "%[2]s"}}
%[3]s`

const fallbackKind = `  fallback: {topic: %[1]s, fallback: outbox, local: {sql: "%[2]s"}}
`

// TestSlaveAway: a master that waits for its slave stores nothing as safely as it was told to while the slave is away, though
// it answers. Kinds that can do without half messages do so at once, the others are refused with what the broker says, and
// only the service itself tries again.
func TestSlaveAway(t *testing.T) {
	t.Parallel()
	config := map[string]string{"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
	maps.Copy(config, impatient)
	e, stack := newPrivateEnv(t, devstack.Options{Slaves: true, BrokerConfig: config})
	e.counted()
	if err := e.mq.CreateTopic(t.Context(), e.topic+"-plain", queues); err != nil {
		t.Fatal(err)
	}
	const sql = "INSERT INTO counters (key, n) VALUES (@shard_key, 1) ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n"
	kinds := func(more string) string {
		return e.writeConfig(fmt.Sprintf(slaveKinds, e.topic, sql, fmt.Sprintf(more+"%.0[1]s%.0[2]s", e.topic, sql)))
	}
	e.config = kinds(fallbackKind)
	s := e.start()
	await.Success(t, time.Minute, func() error { // the slave has found its master
		if a, err := s.post("/v1/transactions", numbered("refused", "refused-0", "k")); err != nil || a.Delivery != "delivered" {
			return fmt.Errorf("got %s (%v)", a.Raw, err)
		}
		return nil
	})
	s.ready()
	created := 1 + load(t, []*service{s}, []string{"refused", "fallback"}, 10, 50)

	stack.Slave(0).Kill()
	created += load(t, []*service{s}, []string{"fallback"}, 10, 24) // the first of them wait, all at once
	trials, fallbacks := s.metric("txsvc_broker_breaker_trials_total"), s.metric("txsvc_fallbacks_total")
	before := e.halves()
	const without = 400
	got := load(t, []*service{s}, []string{"fallback"}, 10, without)
	created += got
	s.refusedByTheMaster(`{"kind": "refused", "id": "away-1", "shard_key": "k", "payload": {}}`)
	if fallbacks = s.metric("txsvc_fallbacks_total") - fallbacks; got != without || fallbacks != without {
		t.Errorf("of %d requests %d were answered 201, %v went on without half messages", without, got, fallbacks)
	}
	tried := e.halves() - before
	if trials = s.metric("txsvc_broker_breaker_trials_total") - trials; tried > int64(trials)+1 { // one may have been under way
		t.Errorf("%d half messages were sent, %v by the service itself: requests should not try", tried, trials)
	}
	if status, text := s.page("/readyz"); status != http.StatusOK || !strings.Contains(text, "FLUSH_SLAVE_TIMEOUT") {
		t.Errorf("/readyz: got %d %s, want 200 with what the broker says", status, text)
	}
	if open := s.metric(`txsvc_broker_breaker_open{broker="broker-a"}`); open != 1 {
		t.Errorf("the breaker's metric is %v, want 1", open)
	}
	if a := s.mustPost("/v1/messages", fmt.Sprintf(`{"topic": "%s-plain", "shard_key": "k", "body": {}}`, e.topic), http.StatusCreated); !strings.Contains(a.Raw, `"FLUSH_SLAVE_TIMEOUT"`) {
		t.Errorf("a message without a transaction: got %s", a.Raw)
	}

	e.config = kinds("")
	strict := e.start() // all of its kinds need half messages
	strict.refusedByTheMaster(`{"kind": "refused", "id": "away-2", "shard_key": "k", "payload": {}}`)
	strict.notReady("FLUSH_SLAVE_TIMEOUT")

	if err := stack.Slave(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Success(t, time.Minute, func() error {
		if open := s.metric(`txsvc_broker_breaker_open{broker="broker-a"}`); open != 0 {
			return fmt.Errorf("the breaker's metric is %v", open)
		}
		return nil
	})
	strict.ready()
	for _, id := range []string{"away-1", "away-2"} {
		s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": "refused", "id": %q, "shard_key": "k", "payload": {}}`, id), http.StatusCreated)
	}
	created += 2 + load(t, []*service{s, strict}, []string{"refused"}, 10, 50)
	if got := e.settleInOrder(time.Minute); got != created {
		t.Errorf("%d transactions are committed, %d were answered so", got, created)
	}
}

// refusedByTheMaster posts, and expects 503 with the broker's own words.
func (s *service) refusedByTheMaster(body string) {
	s.t.Helper()
	a := s.mustPost("/v1/transactions", body, http.StatusServiceUnavailable)
	if a.Code != "broker_unavailable" || !strings.Contains(a.Detail, "FLUSH_SLAVE_TIMEOUT (no slave confirmed it in time); nothing was changed") {
		s.t.Errorf("got %s", a.Raw)
	}
}

// halves counts the half messages that the broker was ever sent.
func (e *env) halves() int64 {
	e.t.Helper()
	n, err := e.mq.MaxOffset(e.t.Context(), "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC", 0)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}
