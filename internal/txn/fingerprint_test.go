package txn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFingerprintTellsRequestsApart: two requests whose JSON is canonical have one fingerprint if and only if they are the same but
// for the id.
func TestFingerprintTellsRequestsApart(t *testing.T) {
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
		if got := a.fingerprint(&Kind{}).same(b.fingerprint(&Kind{})); got != same {
			t.Fatalf("equal fingerprints: %t, equal requests: %t", got, same)
		}
	})
}

// encode distinguishes requests without a hash.
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

// TestSameRequests: the same request in other words, and other requests.
func TestSameRequests(t *testing.T) {
	kind := &Kind{Tag: "created"}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	base := Request{Kind: "k", ShardKey: "s", Payload: raw(`{"a": 1.50, "b": ["x", null], "é": {"c": "\"/\u0001"}}`)}
	with := func(change func(*Request)) Request {
		r := base
		change(&r)
		return r
	}
	payload := func(s string) Request { return with(func(r *Request) { r.Payload = raw(s) }) }
	same := map[string]Request{
		"itself":               base,
		"another id":           with(func(r *Request) { r.ID = "other" }),
		"other order":          payload(`{"é": {"c": "\"/\u0001"}, "b": ["x", null], "a": 1.50}`),
		"other white space":    payload("\n{\"a\":1.50,\t\"b\" : [ \"x\",null ] ,\r\n\"é\":{\"c\":\"\\\"/\\u0001\"} } "),
		"other escapes":        payload(`{"\u0061": 1.50, "b": ["\u0078", null], "\u00e9": {"c": "\u0022\/\u0001"}}`),
		"null for an argument": with(func(r *Request) { r.SelectorArg, r.LocalArg = raw(`null`), raw(`null`) }),
		"the kind's own tag":   with(func(r *Request) { r.Tag = "created" }),
		"empty lists":          with(func(r *Request) { r.Keys, r.Properties = []string{}, map[string]string{} }),
	}
	for name, r := range same {
		if !base.fingerprint(kind).same(r.fingerprint(kind)) {
			t.Errorf("%s: got another request, want the same", name)
		}
	}
	for name, r := range map[string]Request{
		"another number":           payload(`{"a": 1.51, "b": ["x", null], "é": {"c": "\"/\u0001"}}`),
		"a number in other digits": payload(`{"a": 1.5, "b": ["x", null], "é": {"c": "\"/\u0001"}}`),
		"a number as a string":     payload(`{"a": "1.50", "b": ["x", null], "é": {"c": "\"/\u0001"}}`),
		"another order in a list":  payload(`{"a": 1.50, "b": [null, "x"], "é": {"c": "\"/\u0001"}}`),
		"a member less":            payload(`{"a": 1.50, "b": ["x", null]}`),
		"a member that is null":    payload(`{"a": 1.50, "b": ["x", null], "é": {"c": "\"/\u0001"}, "d": null}`),
		"another case":             payload(`{"A": 1.50, "b": ["x", null], "é": {"c": "\"/\u0001"}}`),
		"another text":             payload(`{"a": 1.50, "b": ["x ", null], "é": {"c": "\"/\u0001"}}`),
		"another way to write é":   payload(`{"a": 1.50, "b": ["x", null], "e\u0301": {"c": "\"/\u0001"}}`),
		"another tag":              with(func(r *Request) { r.Tag = "changed" }),
		"an argument":              with(func(r *Request) { r.SelectorArg = raw(`0`) }),
		"the other argument":       with(func(r *Request) { r.LocalArg = raw(`""`) }),
		"a key":                    with(func(r *Request) { r.Keys = []string{"k"} }),
		"a property":               with(func(r *Request) { r.Properties = map[string]string{"p": "v"} }),
	} {
		if base.fingerprint(kind).same(r.fingerprint(kind)) {
			t.Errorf("%s: got the same request, want another", name)
		}
	}
	// The kind's tag may change: a request without one stays the same, and so does one that names the tag of before.
	renamed := &Kind{Tag: "placed"}
	if !base.fingerprint(kind).same(base.fingerprint(renamed)) {
		t.Error("a request without a tag is another one when the kind's tag changes")
	}
	spelled := with(func(r *Request) { r.Tag = "created" })
	for _, r := range []*Kind{renamed, kind} {
		stored := &Transaction{Tag: "created", Fingerprint: spelled.fingerprint(kind)}
		if r == kind {
			stored.Fingerprint = spelled.fingerprint(renamed)
		}
		if !spelled.fingerprintFor(r, stored).same(stored.Fingerprint) {
			t.Error("a request with a tag is another one when the kind's tag changes")
		}
	}
}

// TestCanonicalIsTheValue: two texts have one canonical form if and only if they are one value, by the word of encoding/json.
func TestCanonicalIsTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) //nolint:gosec // a test
		one, other := randomValue(random, 3), randomValue(random, 3)
		a, b, c := write(random, one), write(random, one), write(random, other)
		if form(a) != form(b) {
			t.Fatalf("one value in two ways:\n%s\n%s", a, b)
		}
		if got, want := form(a) == form(c), reflect.DeepEqual(decode(t, a), decode(t, c)); got != want {
			t.Fatalf("one form %t, one value %t:\n%s\n%s", got, want, a, c)
		}
	})
}

// FuzzCanonical: any bytes have a canonical form, and that of JSON depends only on its value.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"a":1,"a":2}`, `[1,[2,{"b":"\ud83d\ude00"}]]`, `"\`, `{"a"`, `{"a":`, `[,]`, `"\ud800"`, `1 2`, `{"b":1,"a":{"d":1,"c":2}}`} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if bytes.Equal(a, b) {
			if form(a) != form(b) {
				t.Fatalf("%q has two forms", a)
			}
			return
		}
		if json.Valid(a) && json.Valid(b) && form(a) == form(b) && !reflect.DeepEqual(decode(t, a), decode(t, b)) {
			t.Fatalf("%q and %q have one form, %q", a, b, form(a))
		}
	})
}

func form(raw []byte) string {
	c := &canonical{}
	return string(c.value(nil, raw))
}

func decode(t interface{ Fatal(args ...any) }, raw []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// randomValue returns a value out of few, so that two are often equal.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 2 && depth > 0:
		object := make(map[string]any)
		for range r.IntN(4) {
			object[randomText(r)] = randomValue(r, depth-1)
		}
		return object
	case n < 3 && depth > 0:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case n < 5:
		return randomText(r)
	case n < 6:
		return json.Number([]string{"0", "1", "1.0", "-0", "1e2", "12345678901234567890"}[r.IntN(6)])
	default:
		return []any{nil, true, false}[r.IntN(3)]
	}
}

func randomText(r *rand.Rand) string {
	return []string{"", "a", "b", "ab", "é", "\"", "\\", "/", "\n", "😀", "\u2028", ",", "{"}[r.IntN(13)]
}

// write writes the value as one of many clients might.
func write(r *rand.Rand, v any) []byte {
	space := func() string { return []string{"", "", " ", "\n\t"}[r.IntN(4)] }
	var b strings.Builder
	b.WriteString(space())
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		b.WriteString("{" + space())
		for i, name := range names {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, "%s%s%s:%s", space(), quote(r, name), space(), write(r, v[name]))
		}
		b.WriteString("}")
	case []any:
		b.WriteString("[" + space())
		for i, element := range v {
			if i > 0 {
				b.WriteString(",")
			}
			b.Write(write(r, element))
		}
		b.WriteString("]")
	case string:
		b.WriteString(quote(r, v))
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
	b.WriteString(space())
	return []byte(b.String())
}

// quote escapes what has to be, and sometimes what has not.
func quote(r *rand.Rand, text string) string {
	if r.IntN(3) > 0 {
		plain, _ := json.Marshal(text)
		return string(plain)
	}
	var b strings.Builder
	for _, c := range text {
		if c > 0xffff {
			c -= 0x10000
			fmt.Fprintf(&b, "\\u%04x\\u%04X", 0xd800+c>>10, 0xdc00+c&0x3ff)
		} else {
			fmt.Fprintf(&b, "\\u%04X", c)
		}
	}
	return `"` + b.String() + `"`
}

// BenchmarkFingerprint: one request of an ordinary size and one of 1 MiB,
func BenchmarkFingerprint(b *testing.B) {
	item := `{"sku": "caf\u00e9-17", "quantity": 2, "amount_minor": 450}`
	for name, n := range map[string]int{"small": 3, "1MiB": 1 << 20 / len(item)} {
		r := Request{Kind: "order.create", ShardKey: "customer-17", Payload: json.RawMessage(
			`{"customer": "customer-17", "currency": "EUR", "items": [` + strings.TrimSuffix(strings.Repeat(item+", ", n), ", ") + `]}`)}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.fingerprint(&Kind{})
			}
		})
	}
}
