package sqltext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// kind is what a token is, as far as splitting and parameters need to know.
type kind int

const (
	end       kind = iota
	word           // an unquoted identifier or key word
	param          // @name
	operand        // a string, a number, a quoted identifier
	operator       // a run of operator characters
	opening        // (
	closing        // )
	semicolon      // ;
	other          // , [ ] . : and what PostgreSQL will complain about
)

// token is text[begin:end].
type token struct {
	kind       kind
	begin, end int
}

// scanner reads tokens as PostgreSQL's scan.l does.
type scanner struct {
	text  string
	at    int
	last  token
	bound bool // the text is a statement's: its parameters are positional ones
}

func errorAt(text string, offset int, format string, args ...any) *Error {
	before := text[:offset]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

func (s *scanner) errorAt(offset int, format string, args ...any) *Error {
	return errorAt(s.text, offset, format, args...)
}

// peek returns the byte i places ahead, 0 behind the end.
func (s *scanner) peek(i int) byte {
	if s.at+i >= len(s.text) {
		return 0
	}
	return s.text[s.at+i]
}

func (s *scanner) next() (token, error) {
	if err := s.skip(); err != nil {
		return token{}, err
	}
	begin := s.at
	k, err := s.scan()
	if err != nil {
		return token{}, err
	}
	s.last = token{kind: k, begin: begin, end: s.at}
	return s.last, nil
}

// skip passes space and comments.
func (s *scanner) skip() error {
	for {
		switch {
		case isSpace(s.peek(0)):
			s.at++
		case s.atLineComment():
			s.skipLine()
		case s.atBlockComment():
			if err := s.skipBlock(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// skipLine passes a comment to the end of its line, which is a line feed or a carriage return.
func (s *scanner) skipLine() {
	if i := strings.IndexAny(s.text[s.at:], "\n\r"); i >= 0 {
		s.at += i
		return
	}
	s.at = len(s.text)
}

// skipBlock passes a comment that may hold others.
func (s *scanner) skipBlock() error {
	begin, depth := s.at, 0
	for s.at < len(s.text) {
		switch {
		case s.atBlockComment():
			depth++
			s.at += 2
		case s.peek(0) == '*' && s.peek(1) == '/':
			depth--
			s.at += 2
		default:
			s.at++
		}
		if depth == 0 {
			return nil
		}
	}
	return s.errorAt(begin, "this comment is not closed")
}

// scan passes one token.
func (s *scanner) scan() (kind, error) {
	switch c := s.peek(0); {
	case s.at == len(s.text):
		return end, nil
	case c == '\'':
		return operand, s.quoted('\'')
	case c == '"':
		return operand, s.quoted('"')
	case c == '$':
		return s.dollar()
	case isWordStart(c):
		return s.word()
	case isDigit(c), c == '.' && isDigit(s.peek(1)):
		s.number()
		return operand, nil
	case isOperator(c):
		return s.operator()
	default:
		s.at++
		return punctuation(c), nil
	}
}

func punctuation(c byte) kind {
	switch c {
	case '(':
		return opening
	case ')':
		return closing
	case ';':
		return semicolon
	default:
		return other
	}
}

// quoted passes a string or an identifier in quotes, where a doubled quote is one quote and a backslash nothing special.
func (s *scanner) quoted(quote byte) error {
	begin := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		if s.text[s.at] != quote {
			continue
		}
		if s.peek(1) != quote {
			s.at++
			return nil
		}
		s.at++
	}
	return s.errorAt(begin, "this %c is not closed", quote)
}

// escaped passes an E'…' string from its quote on: a backslash escapes the next character. Such a string goes on after
// a line break (section 4.1.2.1 of PostgreSQL's manual), under the same rules.
func (s *scanner) escaped() error {
	begin := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch {
		case s.text[s.at] == '\\':
			s.at++
		case s.text[s.at] == '\'' && s.peek(1) == '\'':
			s.at++
		case s.text[s.at] == '\'':
			s.at++
			if !s.continued() {
				return nil
			}
		}
	}
	s.at = len(s.text)
	return s.errorAt(begin, "this ' is not closed")
}

// continued passes space with a line break in it, and line comments, when a quote follows; else it stays where it is.
func (s *scanner) continued() bool {
	behind := s.at
	for comment := s.atLineComment(); comment || isSpace(s.peek(0)); comment = s.atLineComment() {
		if comment {
			s.skipLine()
		} else {
			s.at++
		}
	}
	if s.peek(0) == '\'' && strings.ContainsAny(s.text[behind:s.at], "\n\r") {
		return true
	}
	s.at = behind
	return false
}

// dollar passes a string like $$…$$ or $tag$…$tag$, and refuses $1.
func (s *scanner) dollar() (kind, error) {
	begin := s.at
	s.at++
	if isDigit(s.peek(0)) {
		if s.bound {
			s.number()
			return operand, nil
		}
		return other, s.errorAt(begin, "positional parameters are not allowed: use %s", known)
	}
	if isWordStart(s.peek(0)) {
		for isWordStart(s.peek(0)) || isDigit(s.peek(0)) {
			s.at++
		}
	}
	if s.peek(0) != '$' {
		s.at = begin + 1
		return other, nil
	}
	s.at++
	quote := s.text[begin:s.at]
	length := strings.Index(s.text[s.at:], quote)
	if length < 0 {
		return other, s.errorAt(begin, "this %s is not closed", quote)
	}
	s.at += length + len(quote)
	return operand, nil
}

// word passes an identifier, or a string whose quote follows a letter that says how to read it: E B X N U&.
func (s *scanner) word() (kind, error) {
	switch s.text[s.at] | 0x20 {
	case 'e':
		if s.peek(1) == '\'' {
			s.at++
			return operand, s.escaped()
		}
	case 'b', 'x', 'n':
		if s.peek(1) == '\'' {
			s.at++
			return operand, s.quoted('\'')
		}
	case 'u':
		if quote := s.peek(2); s.peek(1) == '&' && (quote == '\'' || quote == '"') {
			s.at += 2
			return operand, s.quoted(quote)
		}
	}
	s.name()
	return word, nil
}

// name passes an identifier and returns it.
func (s *scanner) name() string {
	begin := s.at
	for isWordStart(s.peek(0)) || isDigit(s.peek(0)) || s.peek(0) == '$' {
		s.at++
	}
	return s.text[begin:s.at]
}

// number passes a number and everything that directly follows it. PostgreSQL refuses it if it is wrong.
func (s *scanner) number() {
	for isWordStart(s.peek(0)) || isDigit(s.peek(0)) || s.peek(0) == '.' {
		s.at++
	}
}

// operator passes a run of operator characters, or a parameter when the run is a single @ before a name.
func (s *scanner) operator() (kind, error) {
	begin := s.at
	for isOperator(s.peek(0)) && !s.atLineComment() && !s.atBlockComment() {
		s.at++
	}
	run := s.text[begin:s.at]
	if run[len(run)-1] != '@' || !isWordStart(s.peek(0)) {
		return operator, nil
	}
	behind := s.at
	name := s.name()
	if run == "@" {
		return param, s.checkParam(begin, name)
	}
	if types[name] != "" {
		return operator, s.errorAt(begin, "%s%s can be read in two ways: put a space before the @ of a parameter, or after the operator %s",
			run, name, run)
	}
	s.at = behind
	return operator, nil
}

func (s *scanner) atLineComment() bool { return s.peek(0) == '-' && s.peek(1) == '-' }

func (s *scanner) atBlockComment() bool { return s.peek(0) == '/' && s.peek(1) == '*' }

// checkParam refuses a parameter that is unknown, or glued to an operand: x@id is an operator between two columns.
func (s *scanner) checkParam(begin int, name string) error {
	if types[name] == "" {
		return s.errorAt(begin, "the parameter @%s is unknown: there are %s; the operator @ needs a space behind it", name, known)
	}
	glued := s.last.end == begin && begin > 0
	if glued && (s.last.kind == word || s.last.kind == operand || s.last.kind == param || s.last.kind == closing || s.text[begin-1] == ']') {
		return s.errorAt(begin, "put a space before the parameter @%s", name)
	}
	return nil
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

func isOperator(c byte) bool { return c != 0 && strings.IndexByte("~!@#^&|`?+-*/%<>=", c) >= 0 }
