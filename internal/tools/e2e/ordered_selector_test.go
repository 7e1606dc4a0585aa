package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestOrderedSelectorChanged: ordered messages do not go by another selector before an operator has accepted it; those
// without an order go on.
func TestOrderedSelectorChanged(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	configured := func(selector string) {
		e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  lined: {topic: %[1]s, ordered: true, selector: {type: %[2]s}, local: {sql: SELECT @id AS id}}
  boxed: {topic: %[1]s, ordered: true, delivery: outbox, selector: {type: %[2]s}, local: {sql: SELECT @id AS id}}
  free: {topic: %[1]s, local: {sql: SELECT @id AS id}}
`, e.topic, selector))
	}
	post := func(s *service, kind string) (answer, error) {
		return s.post("/v1/transactions", fmt.Sprintf(`{"kind": %q, "shard_key": "k", "payload": {}}`, kind))
	}
	configured("hash")
	s := e.start().ready()
	for _, kind := range []string{"lined", "boxed", "free"} {
		if a, err := post(s, kind); err != nil || a.HTTPStatus != http.StatusCreated {
			t.Fatalf("%s: got %d %s (%v)", kind, a.HTTPStatus, a.Raw, err)
		}
	}
	s.stop()

	configured("consistent")
	s = e.start().ready()
	why := "the selector of ordered messages of topic " + e.topic + " is another one than the accepted one, and would move keys: txsvc route accept " + e.topic + " accepts it"
	s.assertDegraded(t, "4 queues; "+why)
	for _, kind := range []string{"lined", "boxed"} {
		if a, err := post(s, kind); err != nil || a.HTTPStatus != http.StatusServiceUnavailable || a.Detail != why+"; nothing was changed" {
			t.Errorf("%s: got %d %s (%v), want 503", kind, a.HTTPStatus, a.Raw, err)
		}
	}
	if a, err := post(s, "free"); err != nil || a.HTTPStatus != http.StatusCreated {
		t.Errorf("without an order: got %d %s (%v)", a.HTTPStatus, a.Raw, err)
	}
	cli := &routes{env: e}
	if out := cli.command(t, "route", "accept", e.topic, "--dry-run"); !strings.Contains(out, `before  {"type":"hash"}`) || !strings.Contains(out, `after   {"type":"consistent"}`) {
		t.Errorf("route accept --dry-run printed:\n%s", out)
	}
	began := time.Now()
	if out := cli.command(t, "route", "accept", e.topic, "--pause", "10s"); !strings.Contains(out, "accepted as version 2; in use in 10s, ordered messages of the topic are refused until then") {
		t.Errorf("route accept printed:\n%s", out)
	}
	await.Success(t, 40*time.Second, func() error {
		a, err := post(s, "lined")
		if err != nil || a.HTTPStatus != http.StatusCreated || !strings.Contains(a.Raw, `"selector":"consistent"`) {
			return fmt.Errorf("got %d %s (%v)", a.HTTPStatus, a.Raw, err)
		}
		return nil
	})
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("the other selector was used after %s, before the pause was over", took)
	}
	if out := cli.command(t, "route", "accept", e.topic); !strings.Contains(out, "nothing changes") {
		t.Errorf("route accept, again, printed:\n%s", out)
	}
}
