package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// receipt is what POST /v1/messages answers.
type receipt struct {
	HTTPStatus int
	Status     any      `json:"status"` // a number in problem documents
	Mode       string   `json:"mode"`
	Queue      queue    `json:"queue"`
	MessageIDs []string `json:"message_ids"`
	Code       string   `json:"code"`
	Detail     string   `json:"detail"`
	Raw        string   `json:"-"`
}

// send posts fields of a request for messages to the test's topic. Errors are those of the connection.
func (e *env) send(s *service, key, fields string) (receipt, error) {
	a, err := s.post("/v1/messages", fmt.Sprintf(`{"topic": %q, "shard_key": %q, %s}`, e.topic, key, fields))
	if err != nil {
		return receipt{}, err
	}
	var r receipt
	err = json.Unmarshal([]byte(a.Raw), &r)
	r.HTTPStatus, r.Raw = a.HTTPStatus, a.Raw
	return r, err
}

func (e *env) mustSend(s *service, key, fields string, status int) receipt {
	e.t.Helper()
	r, err := e.send(s, key, fields)
	if err != nil {
		e.t.Fatal(err)
	}
	if r.HTTPStatus != status {
		e.t.Fatalf("%s: got %d %s, want %d", fields[:min(len(fields), 200)], r.HTTPStatus, r.Raw, status)
	}
	return r
}

// byID reads the topic as consumers see it, by message id.
func (e *env) byID() (map[string][]remoting.Message, error) {
	found, err := e.readTopic()
	byID := make(map[string][]remoting.Message)
	for _, list := range found {
		for _, m := range list {
			byID[m.UniqKey()] = append(byID[m.UniqKey()], m)
		}
	}
	return byID, err
}

// all waits until the topic holds so many messages, and returns them by their ids.
func (e *env) all(want int) map[string][]remoting.Message {
	e.t.Helper()
	var found map[string][]remoting.Message
	await.Success(e.t, 30*time.Second, func() error {
		var err error
		if found, err = e.byID(); err != nil {
			return err
		}
		total := 0
		for _, copies := range found {
			total += len(copies)
		}
		if total != want {
			return fmt.Errorf("%d messages are visible, want %d", total, want)
		}
		return nil
	})
	return found
}

// TestMessagesGoWhereTransactionsGo: the messages of a key share the queue that its transactions have, in whatever way
// they are sent, and the answers say so.
func TestMessagesGoWhereTransactionsGo(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	ways := []struct {
		name, fields string
		status       int
	}{
		{"sync", `"body": {"n": 1}`, 201},
		{"Base64", `"body_base64": "AP8="`, 201},
		{"batch", `"batch": [{"body": 1}, {"body": 2}, {"body_base64": "AA=="}]`, 201},
		{"level", `"body": 1, "delay_level": 1`, 201},
		{"time", `"body": 1, "deliver_at": "` + time.Now().Add(2*time.Second).Format(time.RFC3339Nano) + `"`, 201},
		{"past", `"body": 1, "deliver_at": "2001-01-01T00:00:00Z"`, 201},
		{"async", `"body": 1, "mode": "async"`, 202},
		{"async batch", `"batch": [{"body": 1}, {"body": 2}], "mode": "async"`, 202},
		{"async level", `"body": 1, "mode": "async", "delay_level": 1`, 202},
		{"one-way", `"body": 1, "mode": "oneway"`, 202},
		{"one-way batch", `"batch": [{"body": 1}, {"body": 2}], "mode": "oneway"`, 202},
	}
	want := make(map[string]queue) // by message id
	for i := range 8 {
		key := fmt.Sprintf("Kunde %d 東京", i)
		transaction := s.mustPost("/v1/orders", order("", key), http.StatusCreated)
		want[transaction.MessageID] = transaction.Queue
		for _, way := range ways {
			r := e.mustSend(s, key, way.fields, way.status)
			if r.Queue != transaction.Queue {
				t.Errorf("key %q, %s: got queue %v, that of transactions is %v", key, way.name, r.Queue, transaction.Queue)
			}
			if stored := r.Status == "SEND_OK"; stored != (way.status == http.StatusCreated) {
				t.Errorf("%s: got %s", way.name, r.Raw)
			}
			for _, id := range r.MessageIDs {
				want[id] = r.Queue
			}
		}
	}
	found := e.all(len(want))
	used := make(map[int32]bool)
	for id, q := range want {
		if got := found[id]; len(got) != 1 || int(got[0].QueueID) != q.ID {
			t.Errorf("message %s is visible %d times, want once in queue %d", id, len(got), q.ID)
		} else {
			used[got[0].QueueID] = true
		}
	}
	if len(used) < 2 {
		t.Errorf("all keys went to %v: this shows nothing", used)
	}
	s.stop()
}

// TestMessageRefused: what is wrong is named, and nothing is sent.
func TestMessageRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	for name, tc := range map[string]struct {
		fields, code, says string
		status             int
	}{
		"unknown field":  {`"payload": 1`, "invalid_request", "/payload", 400},
		"no body":        {`"tag": "t"`, "invalid_request", "/body", 400},
		"empty body":     {`"body_base64": ""`, "invalid_request", "/body_base64", 400},
		"two bodies":     {`"body": 1, "body_base64": "AA=="`, "invalid_request", "/body_base64", 400},
		"two delays":     {`"body": 1, "delay_level": 1, "deliver_at": "2030-01-01T00:00:00Z"`, "invalid_request", "/deliver_at", 400},
		"far ahead":      {`"body": 1, "deliver_at": "2999-01-01T00:00:00Z"`, "invalid_request", "3 days", 400},
		"reserved":       {`"body": 1, "properties": {"DELAY": "1"}`, "invalid_request", "/properties/DELAY", 400},
		"priority":       {`"body": 1, "properties": {"_SYS_MSG_PRIORITY_": "7"}`, "invalid_request", "/properties/_SYS_MSG_PRIORITY_", 400},
		"transient":      {`"batch": [{"body": 1, "properties": {"__RMQ.TRANSIENT.x": "1"}}]`, "invalid_request", "/batch/0/properties/__RMQ.TRANSIENT.x", 400},
		"empty property": {`"batch": [{"body": 1}, {"body": 1, "properties": {"p": ""}}]`, "invalid_request", "/batch/1/properties/p", 400},
		"separator":      {`"batch": [{"body": 1, "properties": {"p": "a\u0001b"}}]`, "invalid_request", "/batch/0/properties/p", 400},
		"long property":  {`"body": 1, "properties": {"p": "` + strings.Repeat("x", 31<<10) + `"}`, "invalid_request", "/properties", 400},
		"4 MiB":          {`"body": "` + strings.Repeat("x", 4<<20) + `"`, "payload_too_large", "the broker accepts 4194304", 413},
		"large batch":    {`"batch": [{"body": "` + strings.Repeat("x", 2<<20) + `"}, {"body": "` + strings.Repeat("x", 2<<20) + `"}]`, "payload_too_large", "the first 1 would fit", 413},
		"topic twice":    {`"topic": "no-such-topic", "body": 1`, "invalid_request", "given more than once", 400},
	} {
		for _, mode := range []string{"sync", "async", "oneway"} {
			r := e.mustSend(s, "k", `"mode": "`+mode+`", `+tc.fields, tc.status)
			if r.Code != tc.code || !strings.Contains(r.Raw, tc.says) {
				t.Errorf("%s, %s: got %s, want %s that says %s", name, mode, r.Raw, tc.code, tc.says)
			}
		}
	}
	for _, topic := range []string{"no-such-topic", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"} {
		a := s.mustPost("/v1/messages", `{"topic": "`+topic+`", "shard_key": "k", "body": 1}`, http.StatusBadRequest)
		if !strings.Contains(a.Detail, "/topic: is not one of the configuration's topics: "+e.topic) {
			t.Errorf("topic %s: got %s", topic, a.Detail)
		}
	}
	if a := s.mustPost("/v1/orders", strings.Replace(order("", "k"), "{", `{"delay_level": 1, `, 1), http.StatusBadRequest); !strings.Contains(a.Detail, "/delay_level: is not possible here") {
		t.Errorf("a delayed transaction: got %s", a.Detail)
	}
	e.mustSend(s, "k", `"body": "the only one"`, http.StatusCreated)
	e.all(1)
}

// A repeated request is another message: there is no idempotency without a transaction.
func TestRepeatedMessage(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	first := e.mustSend(s, "k", `"body": 1, "keys": ["id-1"]`, http.StatusCreated)
	second := e.mustSend(s, "k", `"body": 1, "keys": ["id-1"]`, http.StatusCreated)
	if first.MessageIDs[0] == second.MessageIDs[0] {
		t.Errorf("both have the id %s", first.MessageIDs[0])
	}
	e.all(2)
}

// TestMessageToAStoppedBroker: a broker that does not answer may store what it was sent, and that is what the answer says.
func TestMessageToAStoppedBroker(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{})
	s := e.start().ready()
	e.mustSend(s, "k", `"body": "before"`, http.StatusCreated)
	stack.Broker(0).Pause()
	r := e.mustSend(s, "k", `"body": 1`, http.StatusGatewayTimeout)
	if r.Code != "unconfirmed" || len(r.MessageIDs) != 1 || !strings.Contains(r.Detail, "may be stored") {
		t.Errorf("got %s, want unconfirmed with an id, and that it may be stored", r.Raw)
	}
	stack.Broker(0).Resume()
	if got := e.all(2)[r.MessageIDs[0]]; len(got) != 1 {
		t.Errorf("message %s is visible %d times, want 1", r.MessageIDs[0], len(got))
	}
	stack.Broker(0).Kill()
	await.Success(t, 20*time.Second, func() error {
		r, err := e.send(s, "k", `"body": 1`)
		if err != nil || r.HTTPStatus != http.StatusServiceUnavailable || r.Code != "broker_unavailable" {
			return fmt.Errorf("broker gone: got %d %s (%w), want 503 broker_unavailable", r.HTTPStatus, r.Raw, err)
		}
		return nil
	})
	if err := stack.Broker(0).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.all(2)
	s.stop()
}

// TestAsyncIsBounded floods the service while the broker takes nothing: what does not fit is refused. A stop then sends
// what was taken on, once, or tells in the log what it could not.
func TestAsyncIsBounded(t *testing.T) {
	t.Parallel()
	e, stack := newLentEnv(t, devstack.Options{})
	s := e.start().ready()
	e.mustSend(s, "k", `"body": "before"`, http.StatusCreated)
	stack.Broker(0).Pause()
	const clients, each, size, limit = 4, 5, 1000, 10_000
	batch := `"mode": "async", "batch": [` + strings.Repeat(`{"body": 1},`, size-1) + `{"body": 1}]`
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted, refused := make(map[string]bool), 0
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				r, err := e.send(s, fmt.Sprint(c, i), batch)
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case r.HTTPStatus == http.StatusAccepted:
					for _, id := range r.MessageIDs {
						accepted[id] = true
					}
				case r.HTTPStatus == http.StatusServiceUnavailable && r.Code == "overloaded":
					refused++
				default:
					t.Errorf("got %d %s", r.HTTPStatus, r.Raw)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if waiting := s.metric("txsvc_messages_waiting "); waiting > limit || refused == 0 || len(accepted) < limit {
		t.Errorf("%v messages wait, %d were taken on and %d batches refused, want at most %d to wait", waiting, len(accepted), refused, limit)
	}
	s.signal(syscall.SIGTERM)
	stack.Broker(0).Resume()
	s.awaitEnd()
	told, log := 0, s.log.String()
	for id := range accepted {
		if strings.Contains(log, id) {
			told++
		}
	}
	var found map[string][]remoting.Message
	await.Success(t, time.Minute, func() error {
		var err error
		if found, err = e.byID(); err == nil && len(found)+told < 1+len(accepted) {
			err = fmt.Errorf("%d messages are visible of %d that were taken on, and the log tells of %d", len(found)-1, len(accepted), told)
		}
		return err
	})
	for id, copies := range found {
		if len(copies) != 1 {
			t.Errorf("message %s is visible %d times", id, len(copies))
		}
	}
}

// awaitEnd waits for a clean end.
func (s *service) awaitEnd() {
	s.t.Helper()
	select {
	case <-s.done:
		if !s.cmd.ProcessState.Success() {
			s.t.Errorf("the service ended with %s\n%s", s.cmd.ProcessState, tail(s.log.String(), 3000))
		}
	case <-time.After(40 * time.Second):
		s.t.Fatal("the service did not end on SIGTERM")
	}
}

// TestStopSendsWhatWaits: SIGTERM right after the answers to messages of mode async loses none of them.
func TestStopSendsWhatWaits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	const batches, each = 20, 50
	batch := `"mode": "async", "batch": [` + strings.Repeat(`{"body": 1},`, each-1) + `{"body": 1}]`
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() {
			if r, err := e.send(s, fmt.Sprint(i), batch); err != nil || r.HTTPStatus != http.StatusAccepted {
				t.Errorf("got %d %s (%v)", r.HTTPStatus, r.Raw, err)
			}
		})
	}
	wg.Wait()
	s.signal(syscall.SIGTERM)
	s.awaitEnd()
	for id, copies := range e.all(batches * each) {
		if len(copies) != 1 {
			t.Errorf("message %s is visible %d times", id, len(copies))
		}
	}
}

// Messages carry what a transaction's does, but for the transaction.
func TestMessageLooksLikeOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const body = "{\"b\" : 1.50,\t\"a\":\"\\u00fc ü\"}"
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+"/v1/messages", bytes.NewBufferString(
		fmt.Sprintf(`{"topic": %q, "shard_key": "Kunde Ü", "selector_arg": {"secret": 1}, "tag": "t", "keys": ["k1", "Schlüssel"], "properties": {"p": "v"}, "body": %s}`, e.topic, body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", trace)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := read(response); err != nil || a.HTTPStatus != http.StatusCreated {
		t.Fatalf("got %d %s (%v)", a.HTTPStatus, a.Raw, err)
	}
	for id, copies := range e.all(1) {
		p := copies[0].Properties
		for name, want := range map[string]string{
			"TAGS": "t", "KEYS": "k1 Schlüssel", "SHARDING_KEY": "Kunde Ü", "traceparent": trace, "p": "v", "UNIQ_KEY": id,
			"TX_ID": "", "TX_KIND": "", "DELAY": "", "TIMER_DELIVER_MS": "",
		} {
			if got := p.Get(name); got != want {
				t.Errorf("property %s: got %q, want %q", name, got, want)
			}
		}
		if string(copies[0].Body) != body || strings.Contains(p.Encode(), "secret") {
			t.Errorf("got body %s, properties %q", copies[0].Body, p)
		}
	}
	if got := s.metric(fmt.Sprintf(`txsvc_messages_total{mode="sync",status="SEND_OK",topic=%q}`, e.topic)); got != 1 {
		t.Errorf("txsvc_messages_total: got %v, want 1", got)
	}
}
