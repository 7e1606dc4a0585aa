// Package strictjson reads JSON that others wrote: bodies of requests, payloads, and JSON Schemas. It refuses a name that occurs
// twice in an object, bytes that are not UTF-8, anything after the value, and values beyond the limits.
//
// Reader reads token by token, Builder makes a tree of Go values, and Check holds a value that stays as it is against the limits.
package strictjson

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads one JSON value that is in memory. All errors of its methods are *Error, except those that a caller's function
// returns. It is not safe for concurrent use.
type Reader struct {
	data   []byte
	json   jsontext.Decoder
	buffer bytes.Buffer
}

// readers are reused, because most of the cost of a Reader is the memory in which it finds names that occur twice.
var readers = sync.Pool{New: func() any { return new(Reader) }}

// maxReused is the longest text after which a Reader is reused, in bytes, because a longer one may have made the Reader large.
const maxReused = 64 << 10

// Open returns a Reader for the text. Close has to be called when the caller is done with it.
func Open(text []byte) *Reader {
	r := readers.Get().(*Reader) //nolint:forcetypeassert // the pool holds nothing else
	r.reset(text)
	return r
}

func (r *Reader) reset(text []byte) {
	r.data, r.buffer = text, *bytes.NewBuffer(text)
	r.json.Reset(&r.buffer)
}

// Close ends the use of the Reader. What Raw returned stays valid.
func (r *Reader) Close() {
	if len(r.data) <= maxReused {
		r.reset(nil)
		readers.Put(r)
	}
}

// Kind says what comes next, by its first byte: {, [, ", t, f or n, and 0 for every number; } or ] at an end; and the byte 0 where
// nothing can be read.
func (r *Reader) Kind() byte { return byte(r.json.PeekKind()) }

// Pointer returns the JSON Pointer (RFC 6901) of the value or name that was read last.
func (r *Reader) Pointer() string { return string(r.json.StackPointer()) }

// Each reads an object or an array, which has to come next. read reads one member, name and value, or one element.
func (r *Reader) Each(read func() error) error {
	if _, err := r.json.ReadToken(); err != nil {
		return r.fault(err)
	}
	if r.json.StackDepth() > MaxDepth {
		return tooDeep(r.Pointer())
	}
	for kind := r.Kind(); kind != '}' && kind != ']'; kind = r.Kind() {
		if err := read(); err != nil {
			return err
		}
	}
	if _, err := r.json.ReadToken(); err != nil {
		return r.fault(err)
	}
	return nil
}

// Name reads the name of a member. It is valid until the next read.
func (r *Reader) Name() ([]byte, error) {
	name, _, err := r.Text()
	return name, err
}

// Text reads a value, and returns its text if it is a string; false if it is not. The text is valid until the next read.
func (r *Reader) Text() ([]byte, bool, error) {
	value, err := r.json.ReadValue()
	switch {
	case err != nil:
		return nil, false, r.fault(err)
	case value.Kind() != '"':
		return nil, false, nil
	case bytes.IndexByte(value, '\\') < 0:
		return value[1 : len(value)-1], true, nil
	}
	text, _ := jsontext.AppendUnquote([]byte(nil), value) // ReadValue has checked the escapes
	return text, true, nil
}

// Raw reads any value, and returns it as a part of the text. Check holds it against the limits.
func (r *Reader) Raw() (json.RawMessage, error) {
	value, err := r.json.ReadValue()
	if err != nil {
		return nil, r.fault(err)
	}
	end := int(r.json.InputOffset())
	return r.data[end-len(value) : end : end], nil
}

// Skip reads any value, and drops it.
func (r *Reader) Skip() error {
	if err := r.json.SkipValue(); err != nil {
		return r.fault(err)
	}
	return nil
}

// End makes sure that nothing follows the value.
func (r *Reader) End() error {
	rest := bytes.TrimLeft(r.data[r.json.InputOffset():], " \t\r\n")
	if len(rest) == 0 {
		return nil
	}
	return trailing(int64(len(r.data) - len(rest)))
}
