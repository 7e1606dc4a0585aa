package sqltext

import (
	"slices"
	"strings"
)

// xactLock is the advice for a lock of the session.
const xactLock = "; use pg_advisory_xact_lock, whose lock ends with the transaction"

// lasting has the functions whose effect outlasts the transaction, with the message for each.
var lasting = map[string]string{
	"pg_advisory_lock": leavesBehind + xactLock, "pg_advisory_lock_shared": leavesBehind + xactLock,
	"pg_try_advisory_lock": leavesBehind + xactLock, "pg_try_advisory_lock_shared": leavesBehind + xactLock,
	"pg_advisory_unlock": unlocks, "pg_advisory_unlock_shared": unlocks, "pg_advisory_unlock_all": unlocks,
	"dblink_connect": leavesBehind, "dblink_connect_u": leavesBehind, "setseed": leavesBehind,
}

const (
	unlocks     = " is not allowed: the locks of the connection are the service's" + xactLock
	withoutTrue = " without true as its third argument" + leavesBehind
	dropped     = "; use CREATE TEMPORARY TABLE with ON COMMIT DROP"
)

// residue looks for the part of a statement that would leave something behind in the session, as far as the text shows
// it, and returns its place and the reason.
func residue(text string, tokens []token) (offset int, reason string) {
	for i, t := range tokens[:max(len(tokens)-1, 0)] {
		if tokens[i+1].kind != opening {
			continue
		}
		name := function(text, t)
		if why, ok := lasting[name]; ok {
			return t.begin, name + why
		}
		if name == "set_config" && !slices.Equal(argument(text, tokens[i+1:], 2), []string{"TRUE"}) {
			return t.begin, name + withoutTrue
		}
	}
	return tokens[0].begin, residueOf(wordsOutside(text, tokens))
}

// function is the name of a function in lower case, as PostgreSQL takes it; empty for a token that is none.
func function(text string, t token) string {
	name := text[t.begin:t.end]
	switch {
	case t.kind == word:
		return strings.ToLower(name)
	case t.kind == operand && strings.HasPrefix(name, `"`):
		return strings.Trim(name, `"`)
	default:
		return ""
	}
}

// argument returns the words and other tokens of the n-th argument, from 0, of the parenthesis that the tokens begin with.
func argument(text string, tokens []token, n int) (found []string) {
	depth := 0
	for _, t := range tokens {
		part := text[t.begin:t.end]
		switch {
		case t.kind == opening || part == "[":
			depth++
			if depth == 1 {
				continue
			}
		case t.kind == closing || part == "]":
			depth--
		}
		switch {
		case depth == 0:
			return found
		case depth == 1 && part == ",":
			n--
		case n == 0:
			found = append(found, strings.ToUpper(part))
		}
	}
	return found
}

// wordsOutside returns the words outside of parentheses, in upper case.
func wordsOutside(text string, tokens []token) (words []string) {
	depth := 0
	for _, t := range tokens {
		switch t.kind {
		case opening:
			depth++
		case closing:
			depth--
		case word:
			if depth == 0 {
				words = append(words, upper(text, t))
			}
		}
	}
	return words
}

// residueOf finds statements that by their own words leave something behind.
func residueOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "CREATE":
		made := words[:slices.IndexFunc(append(words, "TABLE"), isRelation)] // OR REPLACE, LOCAL and the like
		if slices.ContainsFunc(made, isTemporary) && !follow(words, "ON", "COMMIT", "DROP") || slices.Contains(words, "PG_TEMP") {
			return "CREATE TEMPORARY" + leavesBehind + dropped
		}
	case "DECLARE":
		if follow(words, "WITH", "HOLD") {
			return "a cursor WITH HOLD" + leavesBehind
		}
	case "SELECT":
		if i := slices.Index(words, "INTO"); i > 0 && slices.ContainsFunc(words[i:min(i+3, len(words))], isTemporary) {
			return "INTO TEMPORARY" + leavesBehind + dropped
		}
	}
	return ""
}

func isRelation(word string) bool { return word == "TABLE" || word == "VIEW" || word == "SEQUENCE" }

func isTemporary(word string) bool { return word == "TEMP" || word == "TEMPORARY" }

// follow reports whether the words begin with these, one after the other.
func follow(words []string, row ...string) bool {
	for i := range words {
		if i+len(row) <= len(words) && slices.Equal(words[i:i+len(row)], row) {
			return true
		}
	}
	return false
}
