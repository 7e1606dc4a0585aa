package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// lanesConfig has a kind per place that a lane can be named in, all on the test's topic of four queues.
const lanesConfig = `
topics:
  %[1]s:
    selector:
      type: lanes
      by: selector_arg
      lanes:
        big:     {queues: [0, 1], match: [acme, "acme-*"]}
        far:     {queues: ["broker-z:0"]}
        default: {queues: [2, 3]}
kinds:
  by.arg:     {topic: %[1]s, local: {sql: SELECT @local_arg->>'note' AS note}}
  by.payload:
    topic: %[1]s
    local: {sql: SELECT 1 AS one}
    selector: {type: lanes, by: payload:/customer/tenant, lanes: {big: {queues: [0, 1], match: ["acme*"]}, small: {queues: [2, 3]}}}
  by.header:
    topic: %[1]s
    local: {sql: SELECT 1 AS one}
    selector: {type: lanes, by: header:X-Lane, lanes: {big: {queues: [0, 1]}, default: {queues: [2, 3]}}, within: queue}
`

// A lane is chosen by what the request has, the message is in a queue of that lane, and has nothing of what chose it.
func TestLanes(t *testing.T) {
	t.Parallel()
	const secret = "acme-s3cret"
	e := newEnv(t)
	e.config = e.writeConfig(fmt.Sprintf(lanesConfig, e.topic))
	s := e.start().ready()
	want := make(map[string]string)
	for _, tt := range []struct{ body, header, lane, reason string }{
		{`{"kind":"by.arg","shard_key":"k1","payload":1,"selector_arg":"` + secret + `","local_arg":{"note":"` + secret + `"}}`, "", "big", "lane big (match acme-*), fnv1a64(shard_key) mod 2 = "},
		{`{"kind":"by.arg","shard_key":"k2","payload":1,"local_arg":{"note":"` + secret + `"}}`, "", "default", "lane default (no rule), fnv1a64(shard_key) mod 2 = "},
		{`{"kind":"by.payload","shard_key":"k1","payload":{"customer":{"tenant":"acme"}}}`, "", "big", "lane big (match acme*), fnv1a64(shard_key) mod 2 = "},
		{`{"kind":"by.payload","shard_key":"k1","payload":{"customer":{"tenant":"small"}}}`, "", "small", "lane small (match small), fnv1a64(shard_key) mod 2 = "},
		{`{"kind":"by.header","shard_key":"k1","payload":1,"selector_arg":1}`, "big", "big", "lane big (match big), selector_arg names the id"},
		{`{"kind":"by.header","shard_key":"k1","payload":1,"selector_arg":3}`, secret, "default", "lane default (no rule), selector_arg names the id"},
	} {
		a := s.postWithLane(tt.body, tt.header)
		if a.HTTPStatus != http.StatusCreated || !strings.Contains(a.Raw, `"lane":"`+tt.lane+`"`) || !strings.Contains(a.Raw, `"reason":"`+tt.reason) {
			t.Errorf("%s: got %d %s, want lane %s, reason %s", tt.body, a.HTTPStatus, a.Raw, tt.lane, tt.reason)
		}
		if inBig := a.Queue.ID < 2; inBig != (tt.lane == "big") {
			t.Errorf("%s: got queue %d, which is not one of lane %s", tt.body, a.Queue.ID, tt.lane)
		}
		want[a.ID] = fmt.Sprint(a.Queue.Broker, ":", a.Queue.ID)
	}
	await.Success(t, 10*time.Second, func() error {
		if got := len(e.visible()); got != len(want) {
			return fmt.Errorf("%d transactions are visible, want %d", got, len(want))
		}
		return nil
	})
	for id, copies := range e.visible() {
		m := copies[0]
		if !strings.HasSuffix(want[id], fmt.Sprint(":", m.QueueID)) || len(copies) != 1 {
			t.Errorf("%s: %d copies in queue %d, want one in %s", id, len(copies), m.QueueID, want[id])
		}
		if text := fmt.Sprintf("%q %q", m.Properties, m.Body); strings.Contains(text, secret) {
			t.Errorf("%s: the message has what was for the selector or the local transaction: %s", id, text)
		}
	}
}

// postWithLane sends a transaction with the header X-Lane, unless that is empty.
func (s *service) postWithLane(body, lane string) answer {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodPost, s.url+"/v1/transactions", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if lane != "" {
		request.Header.Set("X-Lane", lane)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := read(response)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// What cannot be routed is refused with the reason, and nothing is done.
func TestLanesRefuse(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.config = e.writeConfig(fmt.Sprintf(lanesConfig, e.topic))
	s := e.start().ready()
	for _, tt := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"kind":"by.arg","id":"x1","shard_key":"k","payload":1,"selector_arg":7}`, 400, `{"pointer":"/selector_arg","message":"must be a string that names the lane, or an object with lane and arg"}`},
		{`{"kind":"by.payload","id":"x2","shard_key":"k","payload":{"customer":{"tenant":7}}}`, 400, `{"pointer":"/payload/customer/tenant","message":"must be a string: it names the lane"}`},
		{`{"kind":"by.payload","id":"x3","shard_key":"k","payload":{"customer":{"tenant":"other"}}}`, 400, `{"pointer":"/payload/customer/tenant","message":"names no lane, and there is no default lane"}`},
		{`{"kind":"by.payload","id":"x4","shard_key":"k","payload":7}`, 400, `{"pointer":"/payload/customer/tenant","message":"is required: it names the lane, and there is no default lane"}`},
		{`{"kind":"by.header","id":"x5","shard_key":"k","payload":1,"selector_arg":0}`, 400, `{"pointer":"/selector_arg","message":"in the lane default: there is no usable queue with the id 0"}`},
		{`{"kind":"by.arg","id":"x6","shard_key":"k","payload":1,"selector_arg":"far"}`, 503, "the lane far has no usable queue now: of its queues (broker-z:0) the topic has none"},
	} {
		a := s.mustPost("/v1/transactions", tt.body, tt.status)
		if !strings.Contains(a.Raw, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.body, a.Raw, tt.want)
		}
	}
	var rows int
	if err := e.db.QueryRow(t.Context(), "SELECT count(*) FROM txsvc.transactions").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("got %d rows (%v), want none", rows, err)
	}
}
