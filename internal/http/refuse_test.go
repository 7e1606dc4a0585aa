package http_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// refused is a body that must be refused, with the place and the words.
type refused struct{ name, body, pointer, message string }

// TestBodiesRefused has what is refused on every path; %s stands for the rest of a good body.
func TestBodiesRefused(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for _, test := range []refused{
		{"empty", ``, "", "a JSON object is required as the body"},
		{"blank", " \n", "", "a JSON object is required as the body"},
		{"array", `[{%s}]`, "", "must be a JSON object"},
		{"string", `"x"`, "", "must be a JSON object"},
		{"null", `null`, "", "must be a JSON object"},
		{"no JSON", `shard_key=acme`, "", "is not valid JSON, at byte 0"},
		{"byte order mark", "\ufeff{%s}", "", "is not valid JSON, at byte 0"},
		{"cut after the name", `{%s,"tag"`, "/tag", "the JSON ends before it is complete"},
		{"cut inside the payload", `{"shard_key":"acme","payload":{"a":[1,`, "/payload/a", "the JSON ends before it is complete"},
		{"trailing comma", `{%s,}`, "", "is not valid JSON, at byte 33"},
		{"single quotes", `{'a':1}`, "", "is not valid JSON, at byte 1"},
		{"comment", `{%s /* */}`, "", "is not valid JSON, at byte 34"},
		{"NaN inside the payload", `{"shard_key":"acme","payload":{"a":NaN}}`, "/payload/a", "is not valid JSON, at byte 35"},
		{"leading zero", `{"shard_key":"acme","payload":01}`, "", "is not valid JSON, at byte 31"},
		{"control character", "{\"shard_key\":\"a\x01\",\"payload\":1}", "/shard_key", "is not valid JSON, at byte 15"},
		{"a second object", `{%s}{}`, "", "there is something after the JSON object, at byte 34"},
		{"a second object further down", "{%s}\n\t [", "", "there is something after the JSON object, at byte 37"},
		{"garbage after it", `{%s}x`, "", "there is something after the JSON object, at byte 34"},
		{"invalid UTF-8", "{\"shard_key\":\"a\xff\",\"payload\":1}", "/shard_key", "is not valid UTF-8, at byte 15"},
		{"invalid UTF-8 inside the payload", "{\"shard_key\":\"a\",\"payload\":{\"a\":\"\xc3(\"}}", "/payload/a", "is not valid UTF-8, at byte 33"},
		{"lone surrogate", `{"shard_key":"\ud800","payload":1}`, "/shard_key", "is not valid JSON, at byte 14"},
		{"nested too deep", `{"shard_key":"acme","payload":` + deep + `}`, "/payload" + strings.Repeat("/0", 508), "is nested more than 128 levels deep"},
		{"nested too deep for others", `{"shard_key":"acme","payload":` + deep[20_000-129:20_000+129] + `}`, "/payload" + strings.Repeat("/0", 128), "is nested more than 128 levels deep"},
		{"argument nested too deep", `{%s,"local_arg":{"a":` + deep[20_000-128:20_000+128] + `}}`, "/local_arg/a" + strings.Repeat("/0", 127), "is nested more than 128 levels deep"},
		{"a number that is large when written out", `{%s,"selector_arg":[1e131071]}`, "/selector_arg/0", "is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken"},
		{"unknown field", `{%s,"shardKey":"x"}`, "/shardKey", "is not a field of this request"},
		{"unknown field of any name", `{%s,"a/b~c":{"x":[]}}`, "/a~1b~0c", "is not a field of this request"},
		{"field in upper case", `{%s,"Tag":"x"}`, "/Tag", "is not a field of this request"},
		{"field given twice", `{%s,"shard_key":"other"}`, "/shard_key", "is given more than once"},
		{"field given twice in other spelling", `{%s,"shar\u0064_key":"other"}`, "/shard_key", "is given more than once"},
		{"name twice inside the payload", `{"shard_key":"acme","payload":{"a":{"b":1,"b":2}}}`, "/payload/a/b", "is given more than once"},
		{"property twice", `{%s,"properties":{"p":"1","p":"2"}}`, "/properties/p", "is given more than once"},
		{"shard key a number", `{"payload":1,"shard_key":7}`, "/shard_key", "must be a string"},
		{"shard key null", `{"payload":1,"shard_key":null}`, "/shard_key", "must be a string"},
		{"id a number", `{%s,"id":1}`, "/id", "must be a string"},
		{"id null", `{%s,"id":null}`, "/id", "must be a string"},
		{"id empty", `{%s,"id":""}`, "/id", "must not be empty"},
		{"tag an array", `{%s,"tag":["x"]}`, "/tag", "must be a string"},
		{"keys a string", `{%s,"keys":"k"}`, "/keys", "must be an array of strings"},
		{"key a number", `{%s,"keys":["a",2]}`, "/keys/1", "must be a string"},
		{"keys cut", `{%s,"keys":["a"}`, "/keys", "is not valid JSON, at byte 45"},
		{"properties an array", `{%s,"properties":[]}`, "/properties", "must be an object of strings"},
		{"property an object", `{%s,"properties":{"a/b":{}}}`, "/properties/a~1b", "must be a string"},
		{"property null", `{%s,"properties":{"a":null}}`, "/properties/a", "must be a string"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			body := strings.ReplaceAll(test.body, "%s", `"shard_key":"acme","payload":{ }`)
			wantFieldError(t, h.post("/v1/orders", body), test.pointer, test.message)
			if len(h.requests) > 0 {
				t.Errorf("the request reached the flow: %+v", h.requests)
			}
		})
	}
}

func TestKindRefused(t *testing.T) {
	for _, test := range []struct {
		path string
		refused
	}{
		{"/v1/orders", refused{"in the path's body", `{"shard_key":"acme","payload":1,"kind":"order.create"}`, "/kind", "is given by the path here and must be left out"}},
		{"/v1/transactions", refused{"missing", `{"shard_key":"acme","payload":1}`, "/kind", "is required"}},
		{"/v1/transactions", refused{"empty", `{"shard_key":"acme","payload":1,"kind":""}`, "/kind", "is required"}},
		{"/v1/transactions", refused{"a number", `{"shard_key":"acme","payload":1,"kind":1}`, "/kind", "must be a string"}},
		{"/v1/transactions", refused{"null", `{"shard_key":"acme","payload":1,"kind":null}`, "/kind", "must be a string"}},
		{"/v1/transactions", refused{"long", `{"shard_key":"acme","payload":1,"kind":"` + strings.Repeat("k", 256) + `"}`, "/kind", "has 256 bytes, at most 255 are allowed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantFieldError(t, setup(t).post(test.path, test.body), test.pointer, test.message)
		})
	}
}

func TestSeveralErrorsAreToldAtOnce(t *testing.T) {
	p := setup(t).post("/v1/transactions", `{"shard_key":1,"keys":[1,"a",2],"x":{},"payload":tru}`).problem(http.StatusBadRequest, "invalid_request")
	got := fmt.Sprint(p.Errors)
	want := "[{/shard_key must be a string} {/keys/0 must be a string} {/keys/2 must be a string} {/x is not a field of this request} {/payload is not valid JSON, at byte 52}]"
	if got != want {
		t.Errorf("got errors\n%s, want\n%s", got, want)
	}
}

// TestAnswersStaySmall: what is told of a bad request does not grow with it.
func TestAnswersStaySmall(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	for name, body := range map[string]string{
		"many errors":         `{"shard_key":"a","payload":1,"keys":[` + strings.Repeat("1,", 100_000) + `1]}`,
		"long name":           `{"` + long + `":1}`,
		"long name of a part": `{"properties":{"` + long + `":1}}`,
		"long kind":           `{"kind":"` + long + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := setup(t).post("/v1/transactions", body)
			a.problem(http.StatusBadRequest, "invalid_request")
			if a.Body.Len() > 4096 {
				t.Errorf("got an answer of %d bytes, want at most 4096", a.Body.Len())
			}
		})
	}
}

func TestMediaTypes(t *testing.T) {
	for _, test := range []struct {
		contentType, encoding string
		status                int
	}{
		{"application/json", "", 201},
		{"application/json; charset=utf-8", "", 201},
		{"Application/JSON;charset=\"UTF-8\"", "identity", 201},
		{"application/vnd.acme.order+json", "", 201},
		{"application/json; charset=latin1", "", 415},
		{"application/json", "gzip", 415},
		{"text/json", "", 415},
		{"text/plain", "", 415},
		{"application/x-www-form-urlencoded", "", 415},
		{"application/jsonp", "", 415},
		{"+json", "", 415},
		{"", "", 415},
		{"json; ; ;", "", 415},
	} {
		t.Run(test.contentType+" "+test.encoding, func(t *testing.T) {
			a := postAs(setup(t), test.contentType, test.encoding)
			if a.Code != test.status {
				t.Fatalf("got %d, want %d", a.Code, test.status)
			}
			if test.status == http.StatusUnsupportedMediaType {
				a.problem(415, "unsupported_media_type")
			}
		})
	}
}

func postAs(h *harness, contentType, encoding string) *answer {
	r := newRequest("/v1/orders", `{"shard_key":"acme","payload":{}}`)
	r.Header.Set("Content-Type", contentType)
	if contentType == "" {
		r.Header.Del("Content-Type")
	}
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	return h.serve(r)
}
