package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// TestCompactedTopic: a topic that keeps the last message of each key takes none without. That is told before a message is
// accepted in the modes that do not wait for the broker, and of batches, which the broker takes and then drops. Messages of
// transactions always have a key.
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stack := stacktest.Shared(t)
	e.topic += "-compacted"
	if out, err := stack.MQAdmin(t.Context(), "updateTopic", "-c", "DefaultCluster", "-t", e.topic, "-r", "4", "-w", "4", "-a", "+cleanup.policy=COMPACTION"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  half: {topic: %[1]s, local: {sql: SELECT @id AS id}}
  boxed: {topic: %[1]s, delivery: outbox, local: {sql: SELECT @id AS id}}
`, e.topic))
	s := e.start().ready()
	refused := func(fields, pointer string) error {
		r, err := e.send(s, "k", fields)
		if err != nil {
			return err
		}
		if r.HTTPStatus != http.StatusBadRequest || r.Code != "invalid_request" || !strings.Contains(r.Raw, `"pointer":"`+pointer+`","message":"at least one key is required`) {
			return fmt.Errorf("%s: got %d %s, want 400 at %s", fields, r.HTTPStatus, r.Raw, pointer)
		}
		return nil
	}
	for _, mode := range []string{"async", "oneway", "sync"} {
		await.Success(t, pickUp, func() error { // a broker that is too busy to tell its settings is not known to refuse
			return refused(`"mode": "`+mode+`", "body": 1`, "/keys")
		})
		await.Success(t, pickUp, func() error {
			return refused(`"mode": "`+mode+`", "batch": [{"body": 1, "keys": ["a"]}, {"body": 2}]`, "/batch/1/keys")
		})
	}
	e.mustSend(s, "k", `"mode": "async", "body": 1, "keys": ["a"]`, http.StatusAccepted)
	e.mustSend(s, "k", `"batch": [{"body": 1, "keys": ["b"]}, {"body": 2, "keys": ["c"]}]`, http.StatusCreated)
	for _, kind := range []string{"half", "boxed"} {
		s.mustPost("/v1/transactions", fmt.Sprintf(`{"kind": %q, "id": %[1]q, "shard_key": "k", "payload": {}}`, kind), http.StatusCreated)
		s.awaitDelivery(kind)
	}
	s.stop() // after what waits in memory was sent
	await.Success(t, pickUp, func() error {
		found, err := e.readTopic()
		if err == nil && (len(found["half"]) != 1 || len(found["boxed"]) != 1 || len(found[""]) != 3) {
			err = fmt.Errorf("visible are %d, %d and %d messages, want 1, 1 and 3", len(found["half"]), len(found["boxed"]), len(found[""]))
		}
		return err
	})
}
