package strictjson

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat(`[`, levels) + strings.Repeat(`]`, levels) }
	const digits = "is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken"
	for name, tc := range map[string]struct{ value, pointer, message string }{
		"small":                    {`{"a":[1,-2.5,"x\"[",null,true,{"b":[]}],"c":6.02e23}`, "", ""},
		"as deep as it may be":     {deep(128), "", ""},
		"wide":                     {`[` + strings.Repeat(`[],`, 1000) + `[]]`, "", ""},
		"too deep":                 {`{"a":{"b":` + deep(127) + `}}`, "/a/b" + strings.Repeat("/0", 126), "is nested more than 128 levels deep"},
		"far too deep":             {deep(9_999), strings.Repeat("/0", 128), "is nested more than 128 levels deep"},
		"brackets in a string":     {`"` + strings.Repeat(`[\"`, 500) + `"`, "", ""},
		"large exponent":           {`{"a":[0,1e131071]}`, "/a/1", digits},
		"small exponent":           {`{"a":1E-401}`, "/a", digits},
		"exponent out of any type": {`[1e99999999999999999999]`, "/0", digits},
		"many digits":              {`[` + strings.Repeat("7", 1001) + `]`, "/0", digits},
		"a name like a number":     {`{"1e999":1}`, "", ""},
		"as large as it may be":    {`[1e400,-1e-400,` + strings.Repeat("7", 1000) + `]`, "", ""},
		"too many large ones":      {`[` + strings.Repeat("1e400,", 50_000) + `1]`, "/42153", "the numbers up to here have more than 16777216 bytes when they are written without exponents"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Error{}
			if wrong := Check([]byte(tc.value)); wrong != nil {
				got = *wrong
			}
			if got.Pointer != tc.pointer || got.Message != tc.message {
				t.Errorf("got %q at %q, want %q at %q", got.Message, got.Pointer, tc.message, tc.pointer)
			}
		})
	}
}

// What is taken is never longer, written out, than it was counted.
func TestWrittenOut(t *testing.T) {
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?`)
	rapid.Check(t, func(t *rapid.T) {
		number := digits.Draw(t, "number")
		counted, ok := writtenOut([]byte(number))
		if !ok {
			return
		}
		value, _ := new(big.Rat).SetString(number)
		places := 0
		if whole, _ := value.FloatPrec(); !value.IsInt() {
			places = whole
		}
		if text := value.FloatString(places); len(text) > counted {
			t.Fatalf("%s is %s: %d bytes, counted %d", number, text, len(text), counted)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	order := json.RawMessage(`{"customer":"acme","currency":"EUR","items":[{"sku":"tea","quantity":2,"amount_minor":450},{"sku":"cup","quantity":1,"amount_minor":1200}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if Check(order) != nil {
			b.Fatal("it is all right")
		}
	}
}
