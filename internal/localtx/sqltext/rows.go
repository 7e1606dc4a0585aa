package sqltext

import (
	"slices"
	"strings"
)

// Query is a statement that returns rows, taken apart so that it can become a part of another statement's WITH.
type Query struct {
	With string // its own WITH and the queries of that, without the comma behind; empty when it has none
	Main string // the rest

	Changes bool // Main itself changes rows, so PostgreSQL executes it as a whole in any place
}

// Query takes the statement apart. It returns false for a statement that returns no rows, and for one that PostgreSQL
// does not allow in a WITH (CALL, SHOW, EXPLAIN, SELECT INTO).
func (s Statement) Query() (Query, bool) {
	tokens, err := tokensOf(s.Text)
	if err != nil {
		return Query{}, false
	}
	main := mainOf(s.Text, tokens)
	if main == len(tokens) || !returnsRows(s.Text, tokens[main:]) {
		return Query{}, false
	}
	begin := tokens[main].begin
	changes := slices.Contains(changing, upper(s.Text, tokens[main]))
	return Query{With: strings.TrimRight(s.Text[:begin], " \t\n\r\f\v"), Main: s.Text[begin:], Changes: changes}, true
}

func tokensOf(text string) ([]token, error) {
	var tokens []token
	for s := (scanner{text: text, bound: true}); ; {
		t, err := s.next()
		if err != nil || t.kind == end {
			return tokens, err
		}
		tokens = append(tokens, t)
	}
}

// upper is a token's text when it is a word, in upper case.
func upper(text string, t token) string {
	if t.kind != word {
		return ""
	}
	return strings.ToUpper(text[t.begin:t.end])
}

// mains are the words with which the statement behind a WITH can begin.
var mains = []string{"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"}

// changing are those of mains that change rows.
var changing = []string{"INSERT", "UPDATE", "DELETE", "MERGE"}

// mainOf returns the index of the token at which the statement proper begins: the first token, or the one behind the
// queries of its WITH. That token is one of a few words, or an opening parenthesis behind a closing one.
func mainOf(text string, tokens []token) int {
	if len(tokens) == 0 || upper(text, tokens[0]) != "WITH" {
		return 0
	}
	depth := 0
	for i, t := range tokens {
		behind := i > 0 && tokens[i-1].kind == closing
		switch {
		case t.kind == opening && depth == 0 && behind:
			return i
		case t.kind == opening:
			depth++
		case t.kind == closing:
			depth--
		case i > 1 && depth == 0 && tokens[i-1].kind != other && slices.Contains(mains, upper(text, t)):
			return i
		}
	}
	return len(tokens)
}

// returnsRows looks at a statement without its WITH.
func returnsRows(text string, tokens []token) bool {
	lead := slices.IndexFunc(tokens, func(t token) bool { return t.kind != opening })
	if lead < 0 {
		return false
	}
	switch upper(text, tokens[lead]) {
	case "SELECT", "VALUES", "TABLE":
		return !hasWord(text, tokens, "INTO")
	case "WITH": // in parentheses
		return lead > 0
	case "INSERT", "UPDATE", "DELETE", "MERGE":
		return hasWord(text, tokens, "RETURNING")
	default:
		return false
	}
}

// hasWord looks for a key word outside of parentheses. The words that matter here are reserved, so none is the name of
// a column.
func hasWord(text string, tokens []token, key string) bool {
	return slices.Contains(wordsOutside(text, tokens), key)
}
