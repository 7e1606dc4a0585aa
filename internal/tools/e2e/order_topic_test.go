package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// TestOrderTopic: java_hash chooses what a producer in Java chooses, also of a topic whose order configuration names fewer
// queues than it has, of one that names a queue which cannot be used, and of one with queues that are not read.
func TestOrderTopic(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stack := stacktest.Shared(t)
	admin := func(args ...string) {
		t.Helper()
		if out, err := stack.MQAdmin(t.Context(), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// Topics without an order configuration notice nothing of it.
	admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
	if err := e.mq.CreateTopic(t.Context(), e.topic, 8); err != nil {
		t.Fatal(err)
	}
	setOrder := func(conf string) {
		t.Helper()
		admin("updateOrderConf", "-m", "put", "-t", e.topic, "-v", conf)
	}
	setOrder("broker-a:4")
	e.config = e.writeConfig(fmt.Sprintf(`
topics:
  %[1]s: {selector: {type: java_hash}}
kinds:
  half: {topic: %[1]s, local: {sql: SELECT @id AS id}}
  lined: {topic: %[1]s, ordered: true, local: {sql: SELECT @id AS id}}
`, e.topic))
	s := e.start().ready()
	keys := keys(40)
	for key, want := range e.sendInJava(t, stack, keys) {
		if got := e.mustSend(s, key, `"body": 1`, http.StatusCreated).Queue; got != want {
			t.Errorf("%s: a message goes to %v, of a producer in Java to %v", key, got, want)
		}
		for _, kind := range []string{"half", "lined"} {
			a := s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": %q, "shard_key": %q, "payload": {}}`, kind, key), http.StatusCreated)
			if a.Queue != want {
				t.Errorf("%s: kind %s goes to %v, of a producer in Java to %v", key, kind, a.Queue, want)
			}
		}
	}

	// Another configuration moves keys: at once those without an order, as in Java; those with one when it is accepted.
	setOrder("broker-a:6;broker-z:2")
	since(t, time.Now(), "order configuration", func() error {
		response, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		a, err := read(response)
		if err == nil && !strings.Contains(a.Raw, "producers in Java choose among broker-a:0-5, broker-z:0-1, of which broker-z:0-1 cannot be used now") {
			err = fmt.Errorf("/readyz: %s", a.Raw)
		}
		return err
	})
	s.assertDegraded(t, "the selector of ordered messages of topic "+e.topic+" is another one than the accepted one")
	refused := 0
	for _, key := range keys {
		a, err := s.post("/v1/transactions", fmt.Sprintf(`{"kind": "half", "shard_key": %q, "payload": {}}`, key))
		switch {
		case err == nil && a.HTTPStatus == http.StatusCreated && a.Queue.ID < 6:
		case err == nil && a.HTTPStatus == http.StatusServiceUnavailable && strings.Contains(a.Detail, "which producers in Java choose for this key, cannot be used now"):
			refused++
		default:
			t.Errorf("%s: got %d %s (%v)", key, a.HTTPStatus, a.Raw, err)
		}
	}
	if refused == 0 || refused == len(keys) {
		t.Errorf("%d of %d keys are refused, want those of broker-z", refused, len(keys))
	}

	// Without a configuration the list has what can be written; what is not read is refused.
	admin("updateOrderConf", "-m", "delete", "-t", e.topic)
	if err := e.mq.ChangeTopic(t.Context(), e.topic, remoting.QueueData{Broker: "broker-a", Read: 7, Write: 8, Perm: remoting.PermRead | remoting.PermWrite}); err != nil {
		t.Fatal(err)
	}
	since(t, time.Now(), "fewer queues to read", func() error {
		a, err := s.post("/v1/messages", fmt.Sprintf(`{"topic": %q, "shard_key": "7", "body": 1}`, e.topic)) // "7".hashCode() is 55
		if err == nil && (a.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(a.Detail, "queue broker-a:7 of topic "+e.topic+", which producers in Java choose")) {
			err = fmt.Errorf("got %d %s", a.HTTPStatus, a.Raw)
		}
		return err
	})
}

// sendInJava has RocketMQ's Java client send one message per key, and returns their queues.
func (e *env) sendInJava(t *testing.T, stack *stacktest.Stack, keys []string) map[string]queue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{"-XX:TieredStopAtLevel=1", "-cp", stack.Classpath, "testdata/OrderProducer.java", strings.Join(stack.Nameservers, ";"), e.topic}, keys...)
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir()) // where the client writes its log
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the producer in Java: %v\n%s", err, tail(string(out), 3000))
	}
	sent := make(map[string]queue)
	for line := range strings.Lines(string(out)) {
		var key string
		var q queue
		if n, _ := fmt.Sscanf(line, "sent %s %s %d", &key, &q.Broker, &q.ID); n == 3 {
			sent[key] = q
		}
	}
	if len(sent) != len(keys) {
		t.Fatalf("the producer in Java sent %d of %d messages:\n%s", len(sent), len(keys), tail(string(out), 3000))
	}
	return sent
}
