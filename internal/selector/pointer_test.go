package selector

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

func TestParsePointer(t *testing.T) {
	for text, valid := range map[string]bool{
		"/a": true, "/": true, "//": true, "/a/0/b": true, "/~0~1": true, "/a b/ü": true, "/~01": true,
		"": false, "a": false, "/~": false, "/a~2": false, "/~~0": false, "#/a": false,
	} {
		if _, err := parsePointer(text); (err == nil) != valid {
			t.Errorf("%q: got %v, want valid: %t", text, err, valid)
		}
	}
}

// The examples of RFC 6901, section 5, and cases near them.
func TestPointer(t *testing.T) {
	doc := []byte(`{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, "q r": 7, "m~n": 8, "o\u0070": {"": [[9]]}}`)
	for text, want := range map[string]string{
		"/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/": `0`, "/a~1b": `1`, "/c%d": `2`, "/e^f": `3`, "/g|h": `4`,
		`/i\j`: `5`, `/k"l`: `6`, "/m~0n": `8`, "/op//0/0": `9`, "/q r": `7`,
		"/foo/2": "", "/foo/-": "", "/foo/01": "", "/foo/+1": "", "/foo/-1": "", "/foo/x": "", "/none": "", "/a~1b/x": "", "/foo/0/0": "",
	} {
		p, err := parsePointer(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.find(doc); err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// lookup follows the pointer through decoded values.
func lookup(doc any, p *pointer) (any, bool) {
	for _, token := range p.tokens {
		switch v := doc.(type) {
		case map[string]any:
			next, ok := v[token.name]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			if token.index < 0 || token.index >= len(v) {
				return nil, false
			}
			doc = v[token.index]
		default:
			return nil, false
		}
	}
	return doc, true
}

// No request makes lanes panic, or return anything but a route or a refusal. A pointer finds the same value as
// encoding/json.
func FuzzLanes(f *testing.F) {
	f.Add([]byte(`"acme"`), []byte(`{"tenant":"acme"}`), "/tenant")
	f.Add([]byte(`{"lane":"acme","arg":{"broker":"broker-a","id":1}}`), []byte(`{"a":[{"b":"acme"}]}`), "/a/0/b")
	f.Add([]byte(`{"lane":"acme","arg":`), []byte(`{"a":"\ud800"}`), "/~1~0")
	f.Add([]byte(`"\`), []byte(` [[[`), "/0/0")
	queues := onBroker("broker-a", 8)
	f.Fuzz(func(t *testing.T, arg, payload []byte, at string) {
		in := txn.SelectorInput{ShardKey: at, Arg: arg, Payload: payload, Header: func(string) string { return at }}
		for _, by := range []string{"selector_arg", "header:X-Lane", "payload:" + at} {
			for _, within := range []string{TypeHash, TypeQueue} {
				s, err := New(shop(by, within))
				if err != nil {
					continue
				}
				route, err := s.Select(queues, in)
				refused, isError := err.(*txn.Error) //nolint:errorlint // Select promises an *Error
				if err == nil && route.Lane == "" || err != nil && (!isError || refused.Code == txn.CodeInternal) {
					t.Fatalf("by %s, within %s: got %+v, %v", by, within, route, err)
				}
			}
		}
		comparePointer(t, payload, at)
	})
}

func comparePointer(t *testing.T, payload []byte, at string) {
	t.Helper()
	p, err := parsePointer(at)
	if err != nil {
		return
	}
	var doc any
	// The service refuses JSON with a name twice and bytes that are not UTF-8, and the two readers may differ there.
	if json.Unmarshal(payload, &doc) != nil || !jsontext.Value(payload).IsValid() {
		return
	}
	found, err := p.find(payload)
	if err != nil {
		t.Fatalf("%s of %s: %v", at, payload, err)
	}
	want, ok := lookup(doc, p)
	if !ok {
		if found != nil {
			t.Fatalf("%s of %s: got %s, want nothing", at, payload, found)
		}
		return
	}
	var got any
	if err := json.Unmarshal(found, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s of %s: got %s (%v), want %v", at, payload, found, err, want)
	}
}
