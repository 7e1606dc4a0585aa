package strictjson

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Fault is the kind of mistake in a text.
type Fault int

// The mistakes.
const (
	Empty       Fault = iota + 1 // there is no value
	NoJSON                       // the grammar is broken
	Cut                          // the text ends before the value does
	NoUTF8                       // a string has bytes that are not UTF-8
	NameTwice                    // an object has two members of one name
	TooDeep                      // see MaxDepth
	LargeNumber                  // see MaxNumberLength, MaxExponent and MaxWrittenOut
	Trailing                     // something follows the value
)

// Error is a mistake in a text. Its message repeats nothing of the text, because messages end up in logs.
type Error struct {
	Fault   Fault
	Pointer string // the JSON Pointer (RFC 6901) of the place; empty: the whole
	Offset  int64  // of the place in bytes, with NoJSON, NoUTF8 and Trailing
	Message string
}

// Error returns place and message.
func (e *Error) Error() string { return strings.TrimSpace(e.Pointer + " " + e.Message) }

// fault translates an error of the tokenizer.
func (r *Reader) fault(err error) *Error {
	at, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok { // io.EOF, before anything
		return &Error{Fault: Empty, Message: "there is no JSON value"}
	}
	pointer, offset := string(at.JSONPointer), at.ByteOffset
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Fault: NameTwice, Pointer: pointer, Message: "is given more than once"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Fault: Cut, Pointer: pointer, Message: "the JSON ends before it is complete"}
	case strings.Contains(at.Err.Error(), "max depth"): // the tokenizer's own limit is 10,000 levels; its error has no name
		return tooDeep(pointer)
	case r.badUTF8(offset):
		return &Error{Fault: NoUTF8, Pointer: pointer, Offset: offset, Message: fmt.Sprintf("is not valid UTF-8, at byte %d", offset)}
	default:
		return &Error{Fault: NoJSON, Pointer: pointer, Offset: offset, Message: fmt.Sprintf("is not valid JSON, at byte %d", offset)}
	}
}

func (r *Reader) badUTF8(offset int64) bool {
	c, size := utf8.DecodeRune(r.data[min(int(offset), len(r.data)):])
	return c == utf8.RuneError && size == 1
}

func tooDeep(pointer string) *Error {
	return &Error{Fault: TooDeep, Pointer: pointer, Message: fmt.Sprintf("is nested more than %d levels deep", MaxDepth)}
}

func largeNumber(pointer string) *Error {
	return &Error{Fault: LargeNumber, Pointer: pointer, Message: fmt.Sprintf(
		"is a number with too many digits: at most %d characters and an exponent of at most %d are taken", MaxNumberLength, MaxExponent)}
}

func trailing(offset int64) *Error {
	return &Error{Fault: Trailing, Offset: offset, Message: fmt.Sprintf("there is something after the JSON value, at byte %d", offset)}
}
