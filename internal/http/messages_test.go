package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/txn"
)

// sender stands in for what sends messages: what it does is the test's.
type sender struct {
	requests []messages.Request
	receipt  messages.Receipt // the answer, but for mode, status and topic where they are empty
	err      error
}

func (s *sender) Send(_ context.Context, r messages.Request) (*messages.Receipt, error) {
	r.Header = nil // functions do not compare
	s.requests = append(s.requests, r)
	if s.err != nil {
		return nil, s.err
	}
	out := s.receipt
	out.Topic, out.ShardKey = r.Topic, r.ShardKey
	out.Route = txn.Route{Queue: txn.Queue{Broker: "broker-a", ID: 3}, Selector: "hash", Reason: "fnv1a64(shard_key) mod 8 = 3"}
	if out.Mode == "" {
		out.Mode, out.Status = messages.ModeSync, "SEND_OK"
	}
	for range r.Messages {
		out.MessageIDs = append(out.MessageIDs, "7F0000010A2C18B4AAC27E5D1F3C0001")
	}
	return &out, nil
}

const pathMessages = "/v1/messages"

func TestMessageReachesTheSenderAsSent(t *testing.T) {
	body := "{ \"b\" : 1.50e+01,\t\"a\":[1 , 2],\n \"\\u0063\": \"\\/ü\" }"
	h := setup(t)
	h.post(pathMessages, `{"topic":"orders","shard_key":"\u0061cme","selector_arg": {"id" : 3 },"mode":"sync","body": `+body+` ,
		"tag":"t","keys":["k1","k\"2"],"properties":{"p":"v"},"delay_level":18}`,
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").want(http.StatusCreated)
	h.post(pathMessages, `{"topic":"orders","shard_key":"a","body_base64":"AP8=","deliver_at":"2030-01-31T12:00:00.25+01:00"}`).want(http.StatusCreated)
	h.post(pathMessages, `{"batch":[{"body":null},{"body_base64":"AA==","tag":"t2","keys":["k"],"properties":{"q":"w"}}],"topic":"o","shard_key":"a","mode":"sync"}`).want(http.StatusCreated)
	want := []messages.Request{
		{
			Topic: "orders", ShardKey: "acme", SelectorArg: json.RawMessage(`{"id" : 3 }`), Mode: messages.ModeSync, DelayLevel: 18,
			Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			Messages: []messages.Message{{Body: []byte(body), JSON: true, Labels: txn.Labels{
				Tag: "t", Keys: []string{"k1", `k"2`}, Properties: map[string]string{"p": "v"},
			}}},
		},
		{
			Topic: "orders", ShardKey: "a", DeliverAt: time.Date(2030, 1, 31, 11, 0, 0, 250e6, time.UTC),
			Messages: []messages.Message{{Body: []byte{0, 255}}},
		},
		{
			Topic: "o", ShardKey: "a", Mode: messages.ModeSync, Batch: true,
			Messages: []messages.Message{{Body: []byte("null"), JSON: true}, {Body: []byte{0}, Labels: txn.Labels{
				Tag: "t2", Keys: []string{"k"}, Properties: map[string]string{"q": "w"},
			}}},
		},
	}
	if diff := cmp.Diff(want, h.messages.requests, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestReceipts(t *testing.T) {
	for _, test := range []struct {
		name    string
		receipt messages.Receipt
		status  int
		want    string
	}{
		{"stored", messages.Receipt{Mode: messages.ModeSync, Status: "SEND_OK"}, 201, `"status":"SEND_OK","advice":null,"mode":"sync"`},
		{"not flushed", messages.Receipt{Mode: messages.ModeSync, Status: "FLUSH_DISK_TIMEOUT", Advice: "x"}, 201, `"status":"FLUSH_DISK_TIMEOUT","advice":"x","mode":"sync"`},
		{"async", messages.Receipt{Mode: messages.ModeAsync, Status: "ACCEPTED", Advice: "x"}, 202, `"status":"ACCEPTED","advice":"x","mode":"async"`},
		{"one-way", messages.Receipt{Mode: messages.ModeOneWay, Status: "ACCEPTED", Advice: "x"}, 202, `"status":"ACCEPTED","advice":"x","mode":"oneway"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			h.messages.receipt = test.receipt
			a := h.post(pathMessages, `{"topic":"orders","shard_key":"acme","batch":[{"body":1},{"body":2}]}`).want(test.status)
			wantBody(t, a, "{"+test.want+`,"topic":"orders","shard_key":"acme","queue":{"broker":"broker-a","id":3},`+
				`"route":{"selector":"hash","lane":null,"reason":"fnv1a64(shard_key) mod 8 = 3"},`+
				`"message_ids":["7F0000010A2C18B4AAC27E5D1F3C0001","7F0000010A2C18B4AAC27E5D1F3C0001"]}`)
		})
	}
}

// TestMessagesRefused has what is refused before the sender is asked; %s stands for the rest of a good request.
func TestMessagesRefused(t *testing.T) {
	const level = "must be a level from 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
	const once = "is given once, beside batch: all messages of a batch go to one queue"
	for _, test := range []refused{
		{"array", `[{%s}]`, "", "must be a JSON object"},
		{"something after it", `{%s}x`, "", "there is something after the JSON object, at byte 37"},
		{"unknown field", `{%s,"payload":1}`, "/payload", "is not a field of this request"},
		{"field given twice", `{%s,"body":1,"body":1}`, "/body", "is given more than once"},
		{"name twice inside the body", `{%s,"body":{"a":1,"a":1}}`, "/body/a", "is given more than once"},
		{"topic a number", `{%s,"body":1,"topic":1}`, "/topic", "is given more than once"},
		{"topic null", `{"topic":null}`, "/topic", "must be a string"},
		{"mode null", `{%s,"mode":null}`, "/mode", "must be a string"},
		{"mode empty", `{%s,"mode":""}`, "/mode", "must be sync, async or oneway"},
		{"two bodies", `{%s,"body":1,"body_base64":"AA=="}`, "/body_base64", "cannot be given with the other one of body and body_base64"},
		{"two bodies, one null", `{%s,"body_base64":"AA==","body":null}`, "/body", "cannot be given with the other one of body and body_base64"},
		{"Base64 null", `{%s,"body_base64":null}`, "/body_base64", "must be a string"},
		{"Base64 empty", `{%s,"body_base64":""}`, "/body_base64", "must not be empty: RocketMQ has no empty messages"},
		{"Base64 without padding", `{%s,"body_base64":"AA"}`, "/body_base64", "must be Base64 with + and / and padding (RFC 4648, section 4)"},
		{"Base64 for URLs", `{%s,"body_base64":"-_8="}`, "/body_base64", "must be Base64 with + and / and padding (RFC 4648, section 4)"},
		{"Base64 with a line's end", `{%s,"body_base64":"AA==\n"}`, "/body_base64", "must be Base64 with + and / and padding (RFC 4648, section 4)"},
		{"Base64 with bits left over", `{%s,"body_base64":"AB=="}`, "/body_base64", "must be Base64 with + and / and padding (RFC 4648, section 4)"},
		{"level 0", `{%s,"delay_level":0}`, "/delay_level", level},
		{"level 19", `{%s,"delay_level":19}`, "/delay_level", level},
		{"level -1", `{%s,"delay_level":-1}`, "/delay_level", level},
		{"level 1.5", `{%s,"delay_level":1.5}`, "/delay_level", level},
		{"level huge", `{%s,"delay_level":1e99}`, "/delay_level", level},
		{"level a string", `{%s,"delay_level":"1"}`, "/delay_level", level},
		{"level null", `{%s,"delay_level":null}`, "/delay_level", level},
		{"time a number", `{%s,"deliver_at":1}`, "/deliver_at", "must be a string"},
		{"time without a zone", `{%s,"deliver_at":"2030-01-31T12:00:00"}`, "/deliver_at", "must be a time as in RFC 3339, like 2030-01-31T12:00:00Z"},
		{"time of another form", `{%s,"deliver_at":"tomorrow"}`, "/deliver_at", "must be a time as in RFC 3339, like 2030-01-31T12:00:00Z"},
		{"batch an object", `{%s,"batch":{}}`, "/batch", "must be an array of messages"},
		{"batch null", `{%s,"batch":null}`, "/batch", "must be an array of messages"},
		{"batch of numbers", `{%s,"batch":[{"body":1},2]}`, "/batch/1", "must be an object: a message"},
		{"batch with a tag beside it", `{%s,"batch":[{"body":1}],"tag":"t"}`, "/tag", "cannot be given with batch: each of its messages has its own"},
		{"batch with a body before it", `{%s,"body":1,"batch":[{"body":1}]}`, "/body", "cannot be given with batch: each of its messages has its own"},
		{"delay in a batch", `{%s,"batch":[{"body":1,"delay_level":1}]}`, "/batch/0/delay_level", "is not possible in a batch: RocketMQ stores it at once"},
		{"time in a batch", `{%s,"batch":[{"body":1,"deliver_at":"x"}]}`, "/batch/0/deliver_at", "is not possible in a batch: RocketMQ stores it at once"},
		{"topic in a batch", `{%s,"batch":[{"body":1,"topic":"x"}]}`, "/batch/0/topic", once},
		{"shard key in a batch", `{%s,"batch":[{"body":1},{"shard_key":"x"}]}`, "/batch/1/shard_key", once},
		{"unknown field in a batch", `{%s,"batch":[{"body":1,"x":1}]}`, "/batch/0/x", "is not a field of this request"},
		{"two bodies in a batch", `{%s,"batch":[{"body":1},{"body":1,"body_base64":"AA=="}]}`, "/batch/1/body_base64", "cannot be given with the other one of body and body_base64"},
		{"property of a batch a number", `{%s,"batch":[{"body":1},{"body":1,"properties":{"a/b":1}}]}`, "/batch/1/properties/a~1b", "must be a string"},
		{"batch of many", `{%s,"batch":[` + strings.Repeat(`{"body":1},`, 1500) + `{"body":1}]}`, "/batch", "has 1501 messages, at most 1000 are allowed: send the others as another batch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			body := strings.ReplaceAll(test.body, "%s", `"topic":"orders","shard_key":"acme"`)
			wantFieldError(t, h.post(pathMessages, body), test.pointer, test.message)
			if len(h.messages.requests) > 0 {
				t.Errorf("the request reached the sender: %+v", h.messages.requests)
			}
		})
	}
}

// A delay on a transaction is refused in words that help.
func TestTransactionsCannotBeDelayed(t *testing.T) {
	const message = "is not possible here: the message of a transaction becomes visible when that is committed; send a delayed one with POST /v1/messages"
	for _, field := range []string{`"delay_level":3`, `"deliver_at":"2030-01-31T12:00:00Z"`} {
		name, _, _ := strings.Cut(field[1:], `"`)
		wantFieldError(t, setup(t).post("/v1/orders", `{"shard_key":"a","payload":1,`+field+`}`), "/"+name, message)
		wantFieldError(t, setup(t).post("/v1/transactions", `{"kind":"order.create","shard_key":"a","payload":1,`+field+`}`), "/"+name, message)
	}
}

func TestMessagesNotSent(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{txn.Invalid(txn.FieldError{Pointer: "/topic", Message: "x"}), 400, "invalid_request"},
		{txn.Errorf(txn.CodePayloadTooLarge, "x"), 413, "payload_too_large"},
		{&txn.Error{Code: txn.CodeOverloaded, RetryAfter: time.Second}, 503, "overloaded"},
		{txn.BrokerUnavailable(errors.New("x"), "x"), 503, "broker_unavailable"},
		{&txn.Error{Code: txn.CodeUnconfirmed, MessageIDs: []string{"A", "B"}}, 504, "unconfirmed"},
		{errors.New("secret"), 500, "internal"},
	} {
		t.Run(test.code, func(t *testing.T) {
			h := setup(t)
			h.messages.err = test.err
			a := h.post(pathMessages, `{"topic":"orders","shard_key":"acme","body":1}`)
			a.problem(test.status, test.code)
			if got := a.Header().Get("Retry-After") != ""; got != (test.status == 503) {
				t.Errorf("Retry-After is there: %t", got)
			}
			if want := fmt.Sprint(test.code == "unconfirmed"); fmt.Sprint(strings.Contains(a.Body.String(), `"message_ids":["A","B"]`)) != want {
				t.Errorf("ids are there: want %s; body %s", want, a.Body)
			}
			if strings.Contains(a.Body.String(), "secret") {
				t.Error("the answer tells the cause")
			}
		})
	}
}

// FuzzMessages wants no panic, an answer of the contract, and no request that reaches the sender without a message.
func FuzzMessages(f *testing.F) {
	for _, body := range []string{
		`{"topic":"orders","shard_key":"a","body":{},"delay_level":1}`,
		`{"topic":"orders","shard_key":"a","batch":[{"body":1,"keys":["k"]},{"body_base64":"AA==","properties":{"a":"b"}}]}`,
		`{"topic":"orders","shard_key":"a","body_base64":"AA==","deliver_at":"2030-01-31T12:00:00Z","mode":"oneway"}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		h := setup(t)
		a := h.post(pathMessages, body)
		if a.Code == http.StatusInternalServerError {
			t.Errorf("got 500: %s", h.log)
		}
	})
}
