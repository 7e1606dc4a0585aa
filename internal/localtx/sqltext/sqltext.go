// Package sqltext reads the SQL of a local transaction: it splits the text into statements and turns named parameters
// into PostgreSQL's positional ones. It knows PostgreSQL's lexical rules (chapter 4.1, with standard_conforming_strings
// on), not its grammar.
//
// A named parameter is written @name. In PostgreSQL @ is an operator character as well, so a parameter is only read
// where a token can begin: after a space, a comma or an opening bracket. Where @name could be read in two ways, the text
// is refused and the error tells how to write it.
package sqltext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names of the parameters; their SQL types are text and jsonb.
const (
	ID          = "id"           // text
	ShardKey    = "shard_key"    // text
	Payload     = "payload"      // jsonb
	LocalArg    = "local_arg"    // jsonb, NULL when the request has none
	SelectorArg = "selector_arg" // jsonb, NULL when the request has none
)

// types has the SQL type of each parameter. The type becomes part of the text, because PostgreSQL cannot infer it from
// $1->>'order_id'.
var types = map[string]string{ID: "text", ShardKey: "text", Payload: "jsonb", LocalArg: "jsonb", SelectorArg: "jsonb"}

const known = "@id, @shard_key, @payload, @local_arg, @selector_arg"

// Statement is one statement, ready to be prepared.
type Statement struct {
	Text string   // with ($1::text) for @id, and so on; without what surrounds it: space, comments, semicolon
	Args []string // the name of $1, of $2, …; each name once
}

// Error says what is wrong with a text, and where.
type Error struct {
	Line    int // from 1
	Column  int // in characters, from 1
	Message string
}

// Error returns the message with its place.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Parse splits the text at semicolons outside of quotes and parentheses. It refuses, with an *Error, a text without a
// statement, unknown and positional parameters, quotes and parentheses that are not closed, and words that begin no
// statement of PostgreSQL. It also refuses statements that begin or end transactions, cannot be part of one, or leave
// something behind in the session.
func Parse(sql string) ([]Statement, error) {
	p, err := parse(sql)
	if err != nil {
		return nil, err
	}
	return p.statements, nil
}

func parse(sql string) (*parser, error) {
	if err := checkEncoding(sql); err != nil {
		return nil, err
	}
	p := &parser{scanner: scanner{text: sql}}
	for {
		token, err := p.scanner.next()
		if err != nil {
			return nil, err
		}
		if err := p.take(token); err != nil {
			return nil, err
		}
		if token.kind == end {
			break
		}
	}
	if len(p.statements) == 0 {
		return nil, p.scanner.errorAt(0, "there is no statement")
	}
	return p, nil
}

// Locate returns the line and the column, as in an Error, of a character of a statement's Text in the text that Parse
// was given. Statements count from 0, characters from 1, as PostgreSQL counts them. A character outside of the text is
// taken for the statement's begin.
func Locate(sql string, statement, character int) (line, column int) {
	p, err := parse(sql)
	if err != nil || statement >= len(p.statements) {
		return 1, 1
	}
	text, offset := p.statements[statement].Text, 0
	for n := range text {
		if character--; character == 0 {
			offset = n
			break
		}
	}
	at := p.origins[statement][0].source
	for _, o := range p.origins[statement] {
		switch {
		case o.text > offset:
		case o.param:
			at = o.source
		default:
			at = o.source + offset - o.text
		}
	}
	e := errorAt(sql, at, "")
	return e.Line, e.Column
}

func checkEncoding(sql string) error {
	for i, r := range sql {
		if r == 0 {
			return errorAt(sql, i, "the character U+0000 is not allowed")
		}
		if r == utf8.RuneError && strings.HasPrefix(sql[i:], "\xef\xbf\xbd") {
			continue // U+FFFD itself
		}
		if r == utf8.RuneError {
			return errorAt(sql, i, "the text is not valid UTF-8")
		}
	}
	return nil
}

// parser collects the tokens of one statement after the other.
type parser struct {
	scanner    scanner
	statements []Statement
	origins    [][]origin // of each statement's tokens
	current    draft
}

// origin is where a token of a statement's text comes from.
type origin struct {
	text, source int  // offsets
	param        bool // it is longer in the text
}

// draft is a statement that is being read.
type draft struct {
	text   strings.Builder
	from   []origin
	args   []string
	begin  int      // offset of the first token
	end    int      // offset behind the last token
	tokens int      // how many there are
	all    []token  // of the text as it was given
	lead   string   // the first token in upper case, when it is a word
	words  []string // the words outside of parentheses, in upper case
	opened []int    // offsets of the parentheses that are open
}

func (p *parser) take(t token) error {
	switch {
	case t.kind == end, t.kind == semicolon && len(p.current.opened) == 0:
		return p.finish()
	case t.kind == param:
		p.append(t, p.placeholder(p.scanner.text[t.begin+1:t.end]))
	case t.kind == closing && len(p.current.opened) == 0:
		return p.scanner.errorAt(t.begin, "there is no ( for this )")
	default:
		p.append(t, p.scanner.text[t.begin:t.end])
	}
	return nil
}

// append adds a token, with the text between it and the token before.
func (p *parser) append(t token, text string) {
	d := &p.current
	if d.tokens > 0 {
		d.text.WriteString(p.scanner.text[d.end:t.begin])
	} else {
		d.begin = t.begin
	}
	d.from = append(d.from, origin{d.text.Len(), t.begin, t.kind == param})
	d.text.WriteString(text)
	d.end = t.end
	switch t.kind {
	case opening:
		d.opened = append(d.opened, t.begin)
	case closing:
		d.opened = d.opened[:len(d.opened)-1]
	case word:
		d.addWord(strings.ToUpper(text))
	}
	d.tokens++
	d.all = append(d.all, t)
}

func (d *draft) addWord(text string) {
	if d.tokens == 0 {
		d.lead = text
	}
	if len(d.opened) == 0 {
		d.words = append(d.words, text)
	}
}

// placeholder returns $n with its type. The parentheses keep a subscript that follows, @payload['a'], from being read
// as a part of the type.
func (p *parser) placeholder(name string) string {
	d := &p.current
	i := slices.Index(d.args, name)
	if i < 0 {
		i = len(d.args)
		d.args = append(d.args, name)
	}
	return "($" + strconv.Itoa(i+1) + "::" + types[name] + ")"
}

// finish ends the current statement; one without tokens does not count.
func (p *parser) finish() error {
	d := &p.current
	if len(d.opened) > 0 {
		return p.scanner.errorAt(d.opened[len(d.opened)-1], "this ( is not closed")
	}
	if d.tokens > 0 {
		reason := cmp.Or(unknown(d.lead, p.scanner.text[d.begin] == '('), refusal(d.lead, d.words))
		if reason != "" {
			return p.scanner.errorAt(d.begin, "%s", reason)
		}
		if offset, reason := residue(p.scanner.text, d.all); reason != "" {
			return p.scanner.errorAt(offset, "%s", reason)
		}
		p.statements = append(p.statements, Statement{Text: d.text.String(), Args: d.args})
		p.origins = append(p.origins, d.from)
	}
	p.current = draft{}
	return nil
}
