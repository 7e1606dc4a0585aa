package sqlstate

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// misfits are the SQLSTATEs of class 22 about a value that does not fit: its type, its range or its form. The others of the
// class are about the statement's use of values, for example a sequence at its end or a division by zero.
var misfits = map[string]bool{
	"22001": true, // too long
	"22003": true, // out of range
	"22007": true, // no date or time
	"22008": true, // date or time out of range
	"22015": true, // interval out of range
	"22018": true, // no character value for a cast
	"22021": true, // a character that the encoding does not have
	"22023": true, // JSON of another type, for example
	"22P02": true, // no text of the type
	"22P03": true, // no binary form of the type
	"22P05": true, // a character that text cannot hold, U+0000
}

// Misfit says that a value did not fit what PostgreSQL was to make of it. The value may come from the request or from the
// database: PostgreSQL does not say. So this is no decision of the business, and is not stored.
func Misfit(e *pgconn.PgError) bool {
	if e.Code == resultRefused {
		return true
	}
	sqlJSON := strings.HasPrefix(e.Code, "2203") || e.Code >= "2203A" && e.Code <= "2203G"
	return misfits[e.Code] || sqlJSON || e.Code == "23502" && !ownRow(e)
}

// MisfitError is the answer to a value that did not fit: 422, not final.
func MisfitError(e *pgconn.PgError) *txn.Error {
	message := e.Message // of 23502: it names column and table
	if e.Code != "23502" && e.Code != resultRefused {
		message = "a value does not fit its type or range"
		if what := safeMessage(e); what != "" {
			message += ": " + what
		}
	}
	state := e.Code
	if state == resultRefused {
		state = "" // it is no SQLSTATE that clients could look up
	}
	return txn.Refused(&txn.Rejection{Message: message, SQLState: state, Constraint: e.ConstraintName}, Redacted(e))
}

// safe are the forms of class 22's messages that name a type, a function or a sequence. The groups are shown; values, which
// most of these messages quote, are not.
var safe = []*regexp.Regexp{
	regexp.MustCompile(`^(invalid input syntax for type [a-z][a-z0-9 ]*(?:\[\])?)(?:: |$)`),
	regexp.MustCompile(`^(invalid input value for enum [^":]+)(?:: |$)`),
	regexp.MustCompile(`(?s)^(?:value )?".*"( is out of range for type (?:smallint|integer|bigint|oid|real|double precision|numeric))$`),
	regexp.MustCompile(`^((?:smallint|integer|bigint|numeric|interval|timestamp|date|money|OID) out of range)$`),
	regexp.MustCompile(`^(value out of range: (?:overflow|underflow))$`),
	regexp.MustCompile(`^(value too long for type (?:character|character varying|bit varying)\(\d+\))$`),
	regexp.MustCompile(`^(date/time field value out of range|date field value out of range|time zone displacement out of range)(?:: |$)`),
	regexp.MustCompile(`^(numeric field overflow|unsupported Unicode escape sequence|division by zero|null value not allowed)$`),
	regexp.MustCompile(`^(cannot cast jsonb [a-z ]+ to type [a-z ]+)$`),
	regexp.MustCompile(`^(cannot (?:call|extract|get|deconstruct|delete|set) [A-Za-z0-9_ -]+)$`),
	regexp.MustCompile(`^(nextval: reached (?:maximum|minimum) value of sequence "[^"]*")`),
}

// precision is PostgreSQL's DETAIL about a numeric whose value is too large.
var precision = regexp.MustCompile(`^A field with precision (\d+), scale (-?\d+) `)

// safeMessage returns the part of a message of class 22 that may be shown. It returns nothing for messages in another
// language (lc_messages), because none of them is known.
func safeMessage(e *pgconn.PgError) string {
	for _, form := range safe {
		if found := form.FindStringSubmatch(e.Message); found != nil {
			message := strings.TrimSpace(found[1])
			if p := precision.FindStringSubmatch(e.Detail); p != nil {
				message += fmt.Sprintf(" of numeric(%s,%s)", p[1], p[2])
			}
			return message
		}
	}
	return ""
}

// Redacted is an error of PostgreSQL for the log, without the message when that is of class 22, which quotes values.
func Redacted(e *pgconn.PgError) error {
	if !strings.HasPrefix(e.Code, "22") {
		return e
	}
	text := "ERROR"
	if what := safeMessage(e); what != "" {
		text += ": " + what
	}
	return fmt.Errorf("%s (SQLSTATE %s, raised by %s)", text, e.Code, e.Routine)
}
