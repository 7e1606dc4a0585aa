package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestSchemathesis lets a tool from outside make requests out of openapi.yaml and hold the answers against it. What it
// cannot know from the document (ids that were used, two ids that differ) it would take for wrongly refused, so that one
// check is left out. The seed is fixed: a failure can be repeated, and a run is not another one each time.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	// The document's examples name the topic orders: with it, messages are sent and not only refused.
	if err := e.mq.CreateTopic(t.Context(), "orders", queues); err != nil {
		t.Fatal(err)
	}
	// It takes the names of kinds from GET /v1/kinds: there is only the one whose messages have an order each.
	e.config = e.writeConfig(fmt.Sprintf(`
topics:
  orders: {selector: {type: hash}}
  %[1]s: {}
kinds:
  order.create: {path: /v1/orders, topic: %[1]s, tag: created, local: {handler: orders}}
`, e.topic))
	s := e.start().ready()
	out, err := exec.CommandContext(t.Context(), "schemathesis", "run", s.url+"/openapi.yaml", "--url", s.url, "--checks", "all",
		"--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage,fuzzing", "--max-examples", "10",
		"--seed", "4711", "--no-color", "--max-time", "40").CombinedOutput()
	if err != nil {
		t.Errorf("schemathesis: %v\n%s", err, tail(string(out), 8000))
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Error("the service logged an error")
	}
	if got := s.metric(`txsvc_messages_total{mode="sync",status="SEND_OK",topic="orders"}`); got == 0 {
		t.Error("no message was sent")
	}
	e.settle(recoverLimit)
}
