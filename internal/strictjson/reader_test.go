package strictjson_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/strictjson"
)

// member is a member of an object, in the order of the text.
type member struct {
	Name  string
	Value any
}

var ordered = strictjson.Builder[[]member]{
	Object: func() []member { return []member{} },
	Add:    func(object []member, name string, value any) []member { return append(object, member{name, value}) },
	Number: func(text json.Number) (any, error) {
		if text == "13" {
			return nil, errUnlucky
		}
		return text, nil
	},
}

var errUnlucky = errors.New("the caller does not want this number")

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestDecode(t *testing.T) {
	got, err := ordered.Decode([]byte(" {\"b\":[1.0, -2e3, {}],\"a\\u0062\":\"\\n\",\"a\":[true,false,null,\"\"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []member{
		{"b", []any{json.Number("1.0"), json.Number("-2e3"), []member{}}}, {"ab", "\n"}, {"a", []any{true, false, nil, ""}},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := ordered.Decode([]byte(nested(strictjson.MaxDepth))); err != nil {
		t.Errorf("as deep as it may be: %v", err)
	}
	if _, err := ordered.Decode([]byte(`{"a":[13]}`)); !errors.Is(err, errUnlucky) {
		t.Errorf("got %v, want the error of the builder's own function", err)
	}
}

// Each mistake is found, at its place, by a Builder and by a Reader that takes the value as a whole. A value that is taken as a whole
// stays as it is, so Check finds what is beyond the limits.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       strictjson.Error
	}{
		{"empty", "", strictjson.Error{Fault: strictjson.Empty, Message: "there is no JSON value"}},
		{"blank", " \r\n\t", strictjson.Error{Fault: strictjson.Empty, Message: "there is no JSON value"}},
		{"a word", "[nil]", strictjson.Error{Fault: strictjson.NoJSON, Pointer: "/0", Offset: 2, Message: "is not valid JSON, at byte 2"}},
		{"an end alone", "}", strictjson.Error{Fault: strictjson.NoJSON, Message: "is not valid JSON, at byte 0"}},
		{"another end", `{"a":[1}}`, strictjson.Error{Fault: strictjson.NoJSON, Pointer: "/a", Offset: 7, Message: "is not valid JSON, at byte 7"}},
		{"a number as a name", `{1:2}`, strictjson.Error{Fault: strictjson.NoJSON, Offset: 1, Message: "is not valid JSON, at byte 1"}},
		{"cut", `{"a":[1,`, strictjson.Error{Fault: strictjson.Cut, Pointer: "/a", Message: "the JSON ends before it is complete"}},
		{"not UTF-8", "[\"\xff\"]", strictjson.Error{Fault: strictjson.NoUTF8, Pointer: "/0", Offset: 2, Message: "is not valid UTF-8, at byte 2"}},
		{"a name twice", `{"a/~":{"b":1,"\u0062":2}}`, strictjson.Error{Fault: strictjson.NameTwice, Pointer: "/a~1~0/b", Message: "is given more than once"}},
		{"another value", "1\n2", strictjson.Error{Fault: strictjson.Trailing, Offset: 2, Message: "there is something after the JSON value, at byte 2"}},
		{"garbage behind it", `{}x`, strictjson.Error{Fault: strictjson.Trailing, Offset: 2, Message: "there is something after the JSON value, at byte 2"}},
		{"too deep", `{"a":` + nested(strictjson.MaxDepth) + `}`, strictjson.Error{
			Fault: strictjson.TooDeep, Pointer: "/a" + strings.Repeat("/0", strictjson.MaxDepth-1), Message: "is nested more than 128 levels deep",
		}},
		{"a large number", `{"a":[0,1e401]}`, strictjson.Error{
			Fault: strictjson.LargeNumber, Pointer: "/a/1",
			Message: "is a number with too many digits: at most 1000 characters and an exponent of at most 400 are taken",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ordered.Decode([]byte(tt.text))
			for reader, err := range map[string]error{"Builder": err, "Reader": readWhole(tt.text)} {
				got, ok := errors.AsType[*strictjson.Error](err)
				if !ok {
					t.Fatalf("%s: got %v, want an *Error", reader, err)
				}
				if diff := cmp.Diff(&tt.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", reader, diff)
				}
			}
		})
	}
}

func readWhole(text string) error {
	r := strictjson.Open([]byte(text))
	defer r.Close()
	value, err := r.Raw()
	if err != nil {
		return err
	}
	if err := r.End(); err != nil {
		return err
	}
	if wrong := strictjson.Check(value); wrong != nil {
		return wrong
	}
	return nil
}

// A Reader says where it is, and what it returned as a part of the text outlives it.
func TestReader(t *testing.T) {
	text := []byte(`{"skipped":{"x":[]},"not text":1,"t\"ext":"\u00e9","raw": {"a" : 1} }`)
	r := strictjson.Open(text)
	var got []string
	var raw json.RawMessage
	if kind := r.Kind(); kind != '{' {
		t.Fatalf("got kind %q, want an object", kind)
	}
	err := r.Each(func() error {
		name, err := r.Name()
		if err != nil {
			return err
		}
		switch got = append(got, string(name)+" at "+r.Pointer()); string(name) {
		case "skipped":
			return r.Skip()
		case "raw":
			raw, err = r.Raw()
			return err
		default:
			value, ok, err := r.Text()
			if ok {
				got = append(got, string(value))
			}
			return err
		}
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if want := []string{"skipped at /skipped", "not text at /not text", `t"ext at /t"ext`, "é", "raw at /raw"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := ordered.Decode([]byte(strings.Repeat(" ", len(text)) + "1")); err != nil { // probably by the same Reader
		t.Fatal(err)
	}
	if string(raw) != `{"a" : 1}` || cap(raw) != len(raw) {
		t.Errorf("got %s with a capacity of %d bytes, want the value as it was written and nothing behind it", raw, cap(raw))
	}
}

// What a caller's function returns comes back as it is, and ends the reading.
func TestEachStops(t *testing.T) {
	r := strictjson.Open([]byte(`[1,2`))
	defer r.Close()
	stop, reads := errors.New("stop"), 0
	if err := r.Each(func() error { reads++; return stop }); !errors.Is(err, stop) || reads != 1 {
		t.Errorf("got %v after %d reads, want the function's own error after one", err, reads)
	}
}

// Where Decode succeeds, other readers find JSON, too.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"a":[1.0e5,null,"\u00e9"]}`, `[[]]`, `{"a":1,"a":2}`, "\xff", ``, `1 2`, `[1e999]`, `{]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := ordered.Decode(text)
		if err == nil && !json.Valid(text) {
			t.Error("no mistake was found in what is not JSON")
		}
		if _, ok := errors.AsType[*strictjson.Error](err); err != nil && !ok && !errors.Is(err, errUnlucky) {
			t.Errorf("got %v, want an *Error", err)
		}
	})
}
