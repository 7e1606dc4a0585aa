package sqltext

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// For any text, an error has a place in it, and a statement is clean. A text without parameters stays the same when it
// is parsed again, so splitting finds the same ends each time.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`insert into t values (@id, @payload->>'a'); select @shard_key`, `select E'\'' 'a' ; $a$;$a$ /* /* */ */ -- x`, `a <@ @payload, b@>c, =@id`,
		"select e'a'\n'\\''; copy t from stdin", `set local a = (1;2); "a;""b", U&'\'`, "\x00\xff@", `select $1 $ $$ $$`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		statements, err := Parse(sql)
		if err != nil {
			checkPlace(t, sql, err)
			return
		}
		if len(statements) == 0 {
			t.Fatal("neither statements nor an error")
		}
		for _, s := range statements {
			checkStatement(t, s)
		}
		if !strings.ContainsAny(sql, "@$") {
			checkAgain(t, statements)
		}
	})
}

func checkPlace(t *testing.T, sql string, err error) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Line < 1 || e.Line > strings.Count(sql, "\n")+1 || e.Column < 1 || e.Message == "" {
		t.Fatalf("%q: got %#v, want an *Error with a place in the text", sql, err)
	}
}

func checkStatement(t *testing.T, s Statement) {
	t.Helper()
	if s.Text == "" || strings.Trim(s.Text, " \t\n\r\f\v") != s.Text {
		t.Fatalf("%q is not trimmed", s.Text)
	}
	if q, ok := s.Query(); ok && (!strings.HasPrefix(s.Text, q.With) || !strings.HasSuffix(s.Text, q.Main) || q.Main == "") {
		t.Fatalf("%q is taken apart as %+v", s.Text, q)
	}
	seen := make(map[string]bool)
	for i, name := range s.Args {
		if types[name] == "" || seen[name] {
			t.Fatalf("%q: argument %q is unknown or there twice", s.Text, name)
		}
		seen[name] = true
		if !strings.Contains(s.Text, fmt.Sprintf("($%d::%s)", i+1, types[name])) {
			t.Fatalf("%q: no place for argument %d, %s", s.Text, i+1, name)
		}
	}
}

func checkAgain(t *testing.T, statements []Statement) {
	t.Helper()
	for _, s := range statements {
		again, err := Parse(s.Text)
		if err != nil {
			t.Fatalf("%q, again: %v", s.Text, err)
		}
		if diff := cmp.Diff([]Statement{s}, again); diff != "" {
			t.Fatalf("again: (-first +second)\n%s", diff)
		}
	}
}
