package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

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
		s.assertDegraded(t, "4 of 8 accepted queues can be used; missing broker-b:0-3; changed ")
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
	await.Success(t, pickUp+10*time.Second, func() error { // rocketmq-client-go looks for brokers every 30 s
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
		why := fmt.Sprintf("queue %s:%d of topic keep cannot be used now, and the selector keeps its keys (on_change: refuse); nothing was changed", q.Broker, q.ID)
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
