package http_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestPreview(t *testing.T) {
	h := setup(t)
	var asked txn.RouteQuery
	h.routes.preview = func(q txn.RouteQuery) (txn.RoutePreview, error) {
		asked = q
		return txn.RoutePreview{Topic: "orders", Queues: 8, Route: txn.Route{
			Queue: txn.Queue{Broker: "broker-a", ID: 3}, Selector: "lanes", Lane: "canary", Reason: "because",
		}}, nil
	}
	a := h.post("/v1/routes/preview", `{"topic":"orders","shard_key":"acme","selector_arg":[1, 2],"payload":{"a" : 1},"headers":{"x-lane":"canary"}}`).want(200)
	want := `{"topic":"orders","queue":{"broker":"broker-a","id":3},"lane":"canary","selector":"lanes","reason":"because","queues":8}`
	if got := a.Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if asked.Topic != "orders" || asked.Kind != "" || asked.ShardKey != "acme" || string(asked.Arg) != "[1, 2]" ||
		string(asked.Payload) != `{"a" : 1}` || asked.Header("X-Lane") != "canary" {
		t.Errorf("got %+v", asked)
	}
	h.post("/v1/routes/preview", `{"kind":"order.create","shard_key":"acme"}`).want(200)
	if asked.Kind != "order.create" || asked.Topic != "" || asked.Header("X-Lane") != "" {
		t.Errorf("got %+v", asked)
	}
}

func TestPreviewIsStrict(t *testing.T) {
	h := setup(t)
	h.routes.preview = func(txn.RouteQuery) (txn.RoutePreview, error) {
		t.Error("a wrong request was asked about")
		return txn.RoutePreview{}, nil
	}
	for name, tc := range map[string]struct{ body, pointer string }{
		"neither":           {`{"shard_key":"a"}`, ""},
		"both":              {`{"kind":"k","topic":"t","shard_key":"a"}`, "/topic"},
		"empty kind":        {`{"kind":"","shard_key":"a"}`, "/kind"},
		"no shard key":      {`{"kind":"k"}`, "/shard_key"},
		"wrong type":        {`{"kind":"k","shard_key":1}`, "/shard_key"},
		"unknown field":     {`{"kind":"k","shard_key":"a","tag":"x"}`, "/tag"},
		"headers of lists":  {`{"kind":"k","shard_key":"a","headers":{"A":["b"]}}`, "/headers/A"},
		"headers no object": {`{"kind":"k","shard_key":"a","headers":[]}`, "/headers"},
		"trailing":          {`{"kind":"k","shard_key":"a"} 1`, ""},
		"no JSON":           {`{"kind":`, "/kind"},
	} {
		t.Run(name, func(t *testing.T) {
			p := h.post("/v1/routes/preview", tc.body).problem(400, "invalid_request")
			if len(p.Errors) != 1 || p.Errors[0].Pointer != tc.pointer {
				t.Errorf("got %v, want one error at %q", p.Errors, tc.pointer)
			}
		})
	}
}

func TestPreviewTellsWhatTheMessageWouldGet(t *testing.T) {
	h := setup(t)
	for code, status := range map[txn.Code]int{
		txn.CodeUnknownKind: 404, txn.CodeNotFound: 404, txn.CodeBrokerUnavailable: 503, txn.CodeDatabaseUnavailable: 503,
	} {
		h.routes.preview = func(txn.RouteQuery) (txn.RoutePreview, error) {
			return txn.RoutePreview{}, &txn.Error{Code: code, Detail: "told", RetryAfter: time.Second}
		}
		if p := h.post("/v1/routes/preview", `{"kind":"k","shard_key":"a"}`).problem(status, string(code)); p.Detail != "told" {
			t.Errorf("%s: got detail %q", code, p.Detail)
		}
	}
}

func TestTopicQueues(t *testing.T) {
	h := setup(t)
	at := time.Date(2024, 5, 17, 9, 30, 0, 0, time.UTC)
	h.routes.topic = func(topic string) (txn.TopicQueues, error) {
		if topic != "orders" {
			return txn.TopicQueues{}, txn.Errorf(txn.CodeNotFound, "no such topic")
		}
		return txn.TopicQueues{
			Topic: topic, Selector: "hash", OnChange: txn.OnChangeRefuse, Version: 2, AcceptedAt: at, ChangedAt: at, Pause: 1500 * time.Microsecond,
			Kinds: []txn.KindRouting{{Kind: "order.create", Selector: "lanes", OnChange: txn.OnChangeRemap}},
			Queues: []txn.QueueState{
				{Queue: txn.Queue{Broker: "broker-a", ID: 0}, Writable: true, Readable: true, Accepted: true},
				{Queue: txn.Queue{Broker: "broker-b", ID: 1}, Readable: true},
			},
		}, nil
	}
	var got, want any
	if err := json.Unmarshal(h.get("/v1/topics/orders/queues").want(200).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"topic":"orders","selector":"hash","on_change":"refuse",
		"kinds":[{"kind":"order.create","selector":"lanes","on_change":"remap"}],
		"queues":[{"broker":"broker-a","id":0,"writable":true,"readable":true,"accepted":true},
			{"broker":"broker-b","id":1,"writable":false,"readable":true,"accepted":false}],
		"changed_at":"2024-05-17T09:30:00.000000Z","accepted":{"version":2,"at":"2024-05-17T09:30:00.000000Z","pause_ms":2}}`), &want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.get("/v1/topics/other/queues").problem(404, "not_found")
	// Without an accepted list, no queue is told to be in one or not.
	h.routes.topic = func(topic string) (txn.TopicQueues, error) {
		return txn.TopicQueues{Topic: topic, Selector: "hash", OnChange: txn.OnChangeRemap, Queues: []txn.QueueState{{Queue: txn.Queue{Broker: "a"}}}}, nil
	}
	if got, want := h.get("/v1/topics/orders/queues").want(200).Body.String(),
		`{"topic":"orders","selector":"hash","on_change":"remap","kinds":[],"queues":[{"broker":"a","id":0,"writable":false,"readable":false,"accepted":null}],"changed_at":null,"accepted":null}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
