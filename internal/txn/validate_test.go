package txn

import (
	"encoding/json"
	"strings"
	"testing"
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

// parserSchema takes {} without a check, and refuses all else.
type parserSchema struct{ checks int }

func (*parserSchema) Parse(payload json.RawMessage) (any, bool) { return 7, string(payload) == `{}` }

func (s *parserSchema) Validate(json.RawMessage) []FieldError {
	s.checks++
	return []FieldError{{Message: "is wrong"}}
}

func (*parserSchema) Document() json.RawMessage { return nil }

// TestParsedPayloadIsHandedOn: the local transaction gets a payload as the schema parsed it, and the payload is read once.
func TestParsedPayloadIsHandedOn(t *testing.T) {
	schema := &parserSchema{}
	r := Request{ID: "tx-1", ShardKey: "k", Payload: json.RawMessage(`{}`)}
	if err := r.validate(&Kind{Schema: schema}); err != nil || r.Parsed != 7 || schema.checks != 0 {
		t.Errorf("got %v, %v after %d checks, want what was parsed, unchecked", r.Parsed, err, schema.checks)
	}
	r = Request{ID: "tx-1", ShardKey: "k", Payload: json.RawMessage(`[]`)}
	if err := r.validate(&Kind{Schema: schema}); CodeOf(err) != CodeInvalidRequest || r.Parsed != nil || schema.checks != 1 {
		t.Errorf("got %v, %v after %d checks, want a refusal by the schema", r.Parsed, err, schema.checks)
	}
}
