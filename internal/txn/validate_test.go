package txn

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func valid() Request {
	return Request{Kind: "k", ID: "id-1", ShardKey: "key", Payload: json.RawMessage(`{}`)}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*Request)
		code    Code
		pointer string // of the only field error
	}{
		"valid":                  {func(*Request) {}, "", ""},
		"longest id":             {func(r *Request) { r.ID = strings.Repeat("a", 255) }, "", ""},
		"id too long":            {func(r *Request) { r.ID = strings.Repeat("a", 256) }, CodeInvalidRequest, "/id"},
		"id with space":          {func(r *Request) { r.ID = "a b" }, CodeInvalidRequest, "/id"},
		"id not ASCII":           {func(r *Request) { r.ID = "ä" }, CodeInvalidRequest, "/id"},
		"empty shard key":        {func(r *Request) { r.ShardKey = "" }, CodeInvalidRequest, "/shard_key"},
		"longest shard key":      {func(r *Request) { r.ShardKey = strings.Repeat("ü", 255) }, "", ""},
		"shard key too long":     {func(r *Request) { r.ShardKey = strings.Repeat("a", 300) }, CodeInvalidRequest, "/shard_key"},
		"separator in shard key": {func(r *Request) { r.ShardKey = "a\x01b" }, CodeInvalidRequest, "/shard_key"},
		"no payload":             {func(r *Request) { r.Payload = nil }, CodeInvalidRequest, "/payload"},
		"tag of two":             {func(r *Request) { r.Tag = "a||b" }, CodeInvalidRequest, "/tag"},
		"key with space":         {func(r *Request) { r.Keys = []string{"a", "b c"} }, CodeInvalidRequest, "/keys/1"},
		"reserved property":      {func(r *Request) { r.Properties = map[string]string{"UNIQ_KEY": "x"} }, CodeInvalidRequest, "/properties/UNIQ_KEY"},
		"our own property":       {func(r *Request) { r.Properties = map[string]string{"TX_ID": "x"} }, CodeInvalidRequest, "/properties/TX_ID"},
		"property to escape":     {func(r *Request) { r.Properties = map[string]string{"a/b~": ""} }, CodeInvalidRequest, "/properties/a~1b~0"},
		"separator in property":  {func(r *Request) { r.Properties = map[string]string{"a": "\x02"} }, CodeInvalidRequest, "/properties/a"},
		"properties too long":    {func(r *Request) { r.Properties = map[string]string{"a": strings.Repeat("x", 32<<10)} }, CodeInvalidRequest, "/properties"},
		"keys too long":          {func(r *Request) { r.Keys = []string{strings.Repeat("x", 32<<10)} }, CodeInvalidRequest, "/keys"},
		"largest payload":        {func(r *Request) { r.Payload = make([]byte, MaxMessageSize-len("id-1")-len("key")) }, "", ""},
		"payload too large":      {func(r *Request) { r.Payload = make([]byte, MaxMessageSize) }, CodePayloadTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := valid()
			tc.change(&r)
			err := r.validate(&Kind{})
			if tc.code == "" {
				if err != nil {
					t.Fatalf("got %v, want no error", err)
				}
				return
			}
			e, ok := err.(*Error)
			if !ok || e.Code != tc.code {
				t.Fatalf("got %v, want code %s", err, tc.code)
			}
			if tc.pointer != "" && (len(e.Fields) != 1 || e.Fields[0].Pointer != tc.pointer) {
				t.Errorf("got fields %v, want one at %s", e.Fields, tc.pointer)
			}
		})
	}
}

// TestHashTellsRequestsApart: two requests have one hash if and only if they are the same but for the id.
func TestHashTellsRequestsApart(t *testing.T) {
	part := rapid.SampledFrom([]string{"", "a", "b", "ab"})
	raw := rapid.Custom(func(t *rapid.T) json.RawMessage {
		if rapid.Bool().Draw(t, "absent") {
			return nil
		}
		return json.RawMessage(part.Draw(t, "raw"))
	})
	request := rapid.Custom(func(t *rapid.T) Request {
		return Request{
			Kind: part.Draw(t, "kind"), ShardKey: part.Draw(t, "shard key"), Payload: raw.Draw(t, "payload"),
			SelectorArg: raw.Draw(t, "selector_arg"), LocalArg: raw.Draw(t, "local_arg"), Tag: part.Draw(t, "tag"),
			Keys:       rapid.SliceOfN(part, 0, 2).Draw(t, "keys"),
			Properties: rapid.MapOfN(part, part, 0, 2).Draw(t, "properties"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := request.Draw(t, "a"), request.Draw(t, "b")
		same := encode(t, a) == encode(t, b)
		if got := string(a.hash()) == string(b.hash()); got != same {
			t.Fatalf("equal hashes: %t, equal requests: %t", got, same)
		}
	})
}

// encode tells requests apart by other means than hash does.
func encode(t *rapid.T, r Request) string {
	absent := func(m json.RawMessage) any {
		if m == nil {
			return 0
		}
		return string(m)
	}
	if r.Keys == nil {
		r.Keys = []string{}
	}
	text, err := json.Marshal([]any{r.Kind, r.ShardKey, absent(r.Payload), absent(r.SelectorArg), absent(r.LocalArg), r.Tag, r.Keys, r.Properties})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
