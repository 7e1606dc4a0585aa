package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestBadInput: what is wrong is named, and nothing is done.
func TestBadInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	good := `"payload": {"customer": "c", "currency": "EUR", "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}`
	for name, tc := range map[string]struct {
		body    string
		status  int
		code    string
		pointer string
	}{
		"5 MiB":               {`{"shard_key": "k", "payload": "` + strings.Repeat("x", 5<<20) + `"}`, 413, "payload_too_large", ""},
		"payload over 4 MiB":  {`{"shard_key": "k", "payload": "` + strings.Repeat("x", 4<<20) + `"}`, 413, "payload_too_large", ""},
		"malformed":           {`{"shard_key": "k", `, 400, "invalid_request", ""},
		"trailing data":       {`{"shard_key": "k", ` + good + `} {}`, 400, "invalid_request", ""},
		"unknown field":       {`{"shard_key": "k", "shardkey": "k", ` + good + `}`, 400, "invalid_request", "/shardkey"},
		"wrong type":          {`{"shard_key": 7, ` + good + `}`, 400, "invalid_request", "/shard_key"},
		"empty shard key":     {`{"shard_key": "", ` + good + `}`, 400, "invalid_request", "/shard_key"},
		"long shard key":      {`{"shard_key": "` + strings.Repeat("k", 300) + `", ` + good + `}`, 400, "invalid_request", "/shard_key"},
		"reserved property":   {`{"shard_key": "k", "properties": {"UNIQ_KEY": "x"}, ` + good + `}`, 400, "invalid_request", "/properties/UNIQ_KEY"},
		"priority":            {`{"shard_key": "k", "properties": {"_SYS_MSG_PRIORITY_": "7"}, ` + good + `}`, 400, "invalid_request", "/properties/_SYS_MSG_PRIORITY_"},
		"no payload":          {`{"shard_key": "k"}`, 400, "invalid_request", "/payload"},
		"order without items": {`{"shard_key": "k", "payload": {"customer": "c", "currency": "EUR", "items": []}}`, 400, "invalid_request", "/payload/items"},
		"items of wrong type": {`{"shard_key": "k", "payload": {"customer": "c", "currency": "EUR", "items": 1}}`, 400, "invalid_request", "/payload/items"},
		"bad currency":        {`{"shard_key": "k", "payload": {"customer": "c", "currency": "euro", "items": [{"sku": "a", "quantity": 1, "amount_minor": 1}]}}`, 400, "invalid_request", "/payload/currency"},
		"nul in payload":      {`{"shard_key": "k", "payload": {"customer": "a\u0000b", "currency": "EUR", "items": [{"sku": "a", "quantity": 1, "amount_minor": 1}]}}`, 400, "invalid_request", "/payload/customer"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.mustPost("/v1/orders", tc.body, tc.status)
			if a.Code != tc.code {
				t.Errorf("got code %s, want %s", a.Code, tc.code)
			}
			var problem struct {
				Errors []struct{ Pointer string } `json:"errors"`
			}
			if err := json.Unmarshal([]byte(a.Raw), &problem); err != nil {
				t.Fatal(err)
			}
			if tc.pointer != "" && (len(problem.Errors) != 1 || problem.Errors[0].Pointer != tc.pointer) {
				t.Errorf("got %s, want one error at %s", a.Raw, tc.pointer)
			}
		})
	}
	if a := s.mustPost("/v1/transactions", `{"kind": "no.such", "shard_key": "k", "payload": 1}`, http.StatusNotFound); a.Code != "unknown_kind" {
		t.Errorf("got code %s, want unknown_kind", a.Code)
	}
	if got, err := s.get("no-such-id"); err != nil || got.HTTPStatus != http.StatusNotFound || got.Code != "not_found" {
		t.Errorf("got %d %s (%v), want 404 not_found", got.HTTPStatus, got.Raw, err)
	}
	if got := len(e.committed()); got != 0 {
		t.Errorf("%d transactions are committed, want none", got)
	}
	if got := len(e.visible()); got != 0 {
		t.Errorf("%d messages are visible, want none", got)
	}
}
