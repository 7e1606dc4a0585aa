package payload_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/payload"
	"github.com/txsvc/txsvc/internal/txn"
)

func files(nameAndText ...string) fstest.MapFS {
	dir := fstest.MapFS{}
	for i := 0; i < len(nameAndText); i += 2 {
		dir[nameAndText[i]] = &fstest.MapFile{Data: []byte(nameAndText[i+1])}
	}
	return dir
}

func mustCompile(t testing.TB, schema string) *payload.Schema {
	t.Helper()
	s, err := payload.Compile(files("schema.json", schema), "schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestValidate(t *testing.T) {
	one := func(pointer, message string) []txn.FieldError {
		return []txn.FieldError{{Pointer: pointer, Message: message}}
	}
	for _, tt := range []struct {
		name, schema, payload string
		want                  []txn.FieldError
	}{
		{"anything", `true`, `{"a":[1,"x",null,true,false,{}]}`, nil},
		{"nothing", `false`, `1`, one("", "is not allowed")},
		{"type", `{"type":["string","null"]}`, `5`, one("", "must be of type null or string, not number")},
		{"nested", `{"properties":{"items":{"items":{"properties":{"a":{"type":"integer"}}}}}}`, `{"items":[{"a":1},{"a":"x"}]}`,
			one("/items/1/a", "must be of type integer, not string")},
		{"required", `{"required":["a","b"]}`, `{}`, []txn.FieldError{{Pointer: "/a", Message: "is required"}, {Pointer: "/b", Message: "is required"}}},
		{"required deep", `{"properties":{"o":{"required":["a"]}}}`, `{"o":{}}`, one("/o/a", "is required")},
		{"unknown", `{"properties":{"a":true},"additionalProperties":false}`, `{"a":1,"b/c~":2}`, one("/b~1c~0", "is unknown")},
		{"unevaluated", `{"properties":{"a":true},"unevaluatedProperties":false}`, `{"a":1,"b":2}`, one("/b", "is not allowed")},
		{"names", `{"propertyNames":{"pattern":"^a"}}`, `{"b":2}`, one("/b", "has a name that is not allowed")},
		{"dependent", `{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, one("/b", "is required beside a")},
		{"enum", `{"enum":["EUR","USD",1]}`, `"GBP"`, one("", `must be one of "EUR", "USD", 1`)},
		{"long enum", `{"enum":[1,2,3,4,5,6,7,8,9,10,11]}`, `0`, one("", `must be one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …`)},
		{"const", `{"const":{"a":1}}`, `0`, one("", `must be {"a":1}`)},
		{"formats", `{"properties":{"a":{"format":"email"},"b":{"format":"date-time"},"c":{"format":"uuid"}}}`, `{"a":"x","b":"x","c":"x"}`, []txn.FieldError{
			{Pointer: "/a", Message: "must have the format email"},
			{Pointer: "/b", Message: "must have the format date-time"},
			{Pointer: "/c", Message: "must have the format uuid"},
		}},
		{"formats met", `{"properties":{"a":{"format":"email"},"b":{"format":"date-time"}}}`, `{"a":"x@example.com","b":"2026-01-02T03:04:05Z"}`, nil},
		{"pattern", `{"pattern":"^[A-Z]{3}$"}`, `"secret"`, one("", "must match the pattern ^[A-Z]{3}$")},
		{"lengths", `{"items":{"minLength":2,"maxLength":3}}`, `["é","éééé","éé"]`, []txn.FieldError{
			{Pointer: "/0", Message: "must have at least 2 characters"}, {Pointer: "/1", Message: "must have at most 3 characters"},
		}},
		{"items", `{"minItems":2}`, `[1]`, one("", "must have at least 2 items")},
		{"too many items", `{"maxItems":1}`, `[1,2]`, one("", "must have at most 1 items")},
		{"members", `{"minProperties":1}`, `{}`, one("", "must have at least 1 members")},
		{"too many members", `{"maxProperties":0}`, `{"a":1}`, one("", "must have at most 0 members")},
		{"unique", `{"uniqueItems":true}`, `[1,2,1.0]`, one("", "the items 0 and 2 are equal")},
		{"contains", `{"contains":{"const":1}}`, `[2]`, one("", "has no item of the form that is required")},
		{"bounds", `{"items":{"minimum":1.5,"exclusiveMaximum":10}}`, `[1,10]`, []txn.FieldError{
			{Pointer: "/0", Message: "must be at least 1.5"}, {Pointer: "/1", Message: "must be less than 10"},
		}},
		{"exclusive", `{"exclusiveMinimum":0,"maximum":7}`, `0`, one("", "must be more than 0")},
		{"multiple", `{"multipleOf":0.01}`, `1.005`, one("", "must be a multiple of 0.01")},
		{"exact decimals", `{"multipleOf":0.01}`, `4.35`, nil},
		{"beyond a double", `{"maximum":9223372036854775807}`, `9223372036854775808`, one("", "must be at most 9223372036854775807")},
		{"the last of int64", `{"type":"integer","maximum":9223372036854775807}`, `9223372036854775807`, nil},
		{"whole numbers", `{"type":"integer"}`, `1e3`, nil},
		{"one form is near", `{"anyOf":[{"type":"null"},{"type":"object","required":["a"]}]}`, `{}`, one("/a", "is required")},
		{"no form is near", `{"oneOf":[{"type":"null"},{"type":"string"}]}`, `{}`, one("", "has none of the allowed forms")},
		{"two forms are near", `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`, one("", "has none of the allowed forms")},
		{"a type further in is near", `{"anyOf":[{"type":"null"},{"properties":{"a":{"type":"string"}}}]}`, `{"a":1}`, one("/a", "must be of type string, not number")},
		{"two forms fit", `{"oneOf":[{"minimum":1},{"maximum":9}]}`, `5`, one("", "must have exactly one of the allowed forms, and has two")},
		{"not", `{"not":{"type":"string"}}`, `"x"`, one("", "has a form that is not allowed")},
		{"through references", `{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"properties":{"x":{"type":"null"}}}]}}}`, `{"x":1}`, one("/x", "must be of type null, not number")},
		{"if and then", `{"if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, one("/b", "is required")},
		{"the same name twice", `true`, `{"o":{"a":1,"a":2}}`, one("/o/a", "is there twice")},
		{"not JSON", `true`, `{`, one("", "is not valid JSON")},
		{"empty", `true`, ``, one("", "is not valid JSON")},
		{"not UTF-8", `true`, "\"\xff\"", one("", "is not valid JSON")},
		{"two values", `true`, `1 2`, one("", "holds more than one value")},
		{"an exponent that would take forever", `{"minimum":0}`, `{"a":[1e999999999]}`, one("/a/0",
			"is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken")},
		{"an exponent beyond int", `true`, `-1E-99999999999999999999`, one("",
			"is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken")},
		{"too many digits", `true`, strings.Repeat("9", 1001), one("",
			"is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken")},
		{"the largest double", `{"type":"number"}`, `1.7976931348623157e308`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := mustCompile(t, tt.schema).Validate(json.RawMessage(tt.payload))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// No message has values of the payload, because messages end up in logs.
func TestMessagesHoldNoValues(t *testing.T) {
	s := mustCompile(t, `{"items":{"anyOf":[{"format":"email","type":"string","maxLength":3,"pattern":"^x$","enum":["y"]},
		{"type":"number","maximum":3,"multipleOf":7},{"type":"boolean","const":false}]}}`)
	for _, e := range s.Validate(json.RawMessage(`["s3cret-text", 987654321, true]`)) {
		if strings.Contains(e.Message, "s3cret") || strings.Contains(e.Message, "987654321") {
			t.Errorf("%s: %q tells the value", e.Pointer, e.Message)
		}
	}
}

func TestValidateTellsAFewOfManyErrors(t *testing.T) {
	got := mustCompile(t, `{"items":{"type":"string"}}`).Validate(json.RawMessage("[" + strings.Repeat("1,", 999) + "1]"))
	want := txn.FieldError{Message: "there are 950 more errors"}
	if len(got) != payload.MaxErrors+1 || got[payload.MaxErrors] != want {
		t.Errorf("got %d errors, the last being %v, want %d and %v", len(got), got[len(got)-1], payload.MaxErrors+1, want)
	}
}

// The worst payload that the limits let through is checked in bounded time.
func TestValidateManyLargeNumbers(t *testing.T) {
	s := mustCompile(t, `{"items":{"type":"number","minimum":0}}`)
	begin := time.Now()
	if got := s.Validate(json.RawMessage("[" + strings.Repeat("1e400,", 100_000) + "1]")); got != nil {
		t.Error(got)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v for 100,000 numbers", took)
	}
}

func TestCompileReadsFilesBesideTheSchema(t *testing.T) {
	dir := files("schemas/order.json", `{"properties":{"a":{"$ref":"defs/amount.json#/$defs/minor"}}}`,
		"schemas/defs/amount.json", `{"$defs":{"minor":{"type":"integer","minimum":1}}}`)
	s, err := payload.Compile(dir, "schemas/order.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(json.RawMessage(`{"a":0}`)); len(got) != 1 || got[0].Pointer != "/a" {
		t.Errorf("got %v, want an error at /a", got)
	}
}

func TestCompileRefuses(t *testing.T) {
	const schema = "schema.json"
	for _, tt := range []struct {
		name, file, text, want string
	}{
		{"no file", "missing.json", `{}`, "reading the schema: open missing.json: file does not exist"},
		{"outside", "../schema.json", `{}`, `"../schema.json" is not a path below the directory`},
		{"absolute", "/schema.json", `{}`, `"/schema.json" is not a path below the directory`},
		{"the directory", ".", `{}`, `"." is not a path below the directory`},
		{"not JSON", schema, `{`, "schema.json: is not valid JSON"},
		{"a name twice", schema, `{"type":"null","type":"string"}`, "schema.json: /type is there twice"},
		{"no schema", schema, `{"type":"strange"}`, `"schema.json#" is not valid against metaschema`},
		{"remote reference", schema, `{"$ref":"https://example.com/a.json"}`, "https://example.com/a.json is not a file beside the schema; nothing else is read"},
		{"a file of the machine", schema, `{"$ref":"file:///etc/hostname"}`, "file:///etc/hostname is not a file beside the schema; nothing else is read"},
		{"relative to a remote id", schema, `{"$id":"https://example.com/a.json","$ref":"b.json"}`, "https://example.com/b.json is not a file beside the schema; nothing else is read"},
		{"remote dialect", schema, `{"$schema":"https://example.com/dialect"}`, "https://example.com/dialect is not a file beside the schema; nothing else is read"},
		{"a reference that leaves the directory", schema, `{"$ref":"../../outside.json"}`, "reading the schema: open outside.json: file does not exist"},
		{"no such definition", schema, `{"$ref":"#/$defs/none"}`, "none"},
		{"a pattern of another engine", schema, `{"pattern":"(?=x)"}`, "regex"},
	} {
		_, err := payload.Compile(files(schema, tt.text), tt.file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", tt.name, err, tt.want)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s := mustCompile(b, `{"type":"object","required":["order_id","items"],"properties":{"order_id":{"type":"string"},
		"items":{"type":"array","items":{"type":"object","required":["sku"],"properties":{"sku":{"type":"string"},"quantity":{"type":"integer","minimum":1}}}}}}`)
	items := make([]string, 5)
	for i := range items {
		items[i] = fmt.Sprintf(`{"sku":"sku-%d","quantity":%d}`, i, i+1)
	}
	text := json.RawMessage(`{"order_id":"o-1","items":[` + strings.Join(items, ",") + `]}`)
	b.ReportAllocs()
	for b.Loop() {
		if wrong := s.Validate(text); wrong != nil {
			b.Fatal(wrong)
		}
	}
}
