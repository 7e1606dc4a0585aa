package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// maxFieldErrors is how many errors of one request are reported.
const maxFieldErrors = 32

// maxKindLength is the longest name of a kind, in bytes, because answers repeat it.
const maxKindLength = 255

// decoder reads one transaction request. It is strict: a field that is unknown, given twice or of another type is an error that
// names the field, and so is anything after the object. The domain checks what the values mean.
type decoder struct {
	data    []byte
	json    *jsontext.Decoder
	kind    string // given by the path; "" when the body has to name it
	request txn.Request
	wrong   []txn.FieldError
}

// decodeRequest returns the request in data. Its payload and arguments are parts of data, byte for byte as sent. Errors
// are *txn.Error with CodeInvalidRequest.
func decodeRequest(data []byte, kind string) (txn.Request, error) {
	source := sources.Get().(*source) //nolint:forcetypeassert // the pool holds nothing else
	defer source.release(len(data))
	d := &decoder{data: data, json: source.open(data), kind: kind, request: txn.Request{Kind: kind}}
	if err := d.object(d.field); err != nil {
		d.syntax(err)
	} else if len(d.wrong) == 0 && d.request.Kind == "" {
		d.add("/kind", "is required")
	}
	if len(d.wrong) > 0 {
		return txn.Request{}, txn.Invalid(d.wrong...)
	}
	return d.request, nil
}

// source is a tokenizer. It is reused, because most of its cost is the memory in which it finds names that are given twice.
type source struct {
	json   jsontext.Decoder
	buffer bytes.Buffer
}

var sources = sync.Pool{New: func() any { return new(source) }}

// maxKeptBody is the largest body after which a source is reused, in bytes, because larger ones may have made the source large.
const maxKeptBody = 64 << 10

func (s *source) open(data []byte) *jsontext.Decoder {
	s.buffer = *bytes.NewBuffer(data)
	s.json.Reset(&s.buffer)
	return &s.json
}

// release drops the body, whose length is size.
func (s *source) release(size int) {
	if size <= maxKeptBody {
		s.open(nil)
		sources.Put(s)
	}
}

func (d *decoder) add(pointer jsontext.Pointer, format string, args ...any) {
	d.wrong = append(d.wrong, txn.FieldError{Pointer: string(pointer), Message: fmt.Sprintf(format, args...)})
}

// addHere adds an error about what was read last.
func (d *decoder) addHere(format string, args ...any) {
	d.add(d.json.StackPointer(), format, args...)
}

// errStop ends the reading of a body whose errors are in d.wrong.
var errStop = errors.New("stop")

// object reads the whole body. field reads one member, name and value.
func (d *decoder) object(field func() error) error {
	if kind := d.json.PeekKind(); kind != '{' && kind != 0 {
		d.add("", "must be a JSON object")
		return errStop
	}
	if err := d.each(field); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(d.data[d.json.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.add("", "there is something after the JSON object, at byte %d", len(d.data)-len(rest))
	}
	return nil
}

// each reads an object or an array. read reads one member, name and value, or one element.
func (d *decoder) each(read func() error) error {
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for {
		switch kind := d.json.PeekKind(); {
		case kind == '}' || kind == ']':
			_, err := d.json.ReadToken()
			return err
		case len(d.wrong) >= maxFieldErrors:
			return errStop
		}
		if err := read(); err != nil {
			return err
		}
	}
}

// field reads one field of the request, name and value.
func (d *decoder) field() error {
	quoted, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	switch string(text(quoted)) {
	case "kind":
		return d.kindName()
	case "id":
		return d.id()
	case "shard_key":
		return d.string(&d.request.ShardKey)
	case "payload":
		return d.raw(&d.request.Payload)
	case "selector_arg":
		return d.raw(&d.request.SelectorArg)
	case "local_arg":
		return d.raw(&d.request.LocalArg)
	case "tag":
		return d.tag(&d.request.Tag)
	case "keys":
		return d.keys(&d.request.Keys)
	case "properties":
		return d.properties(&d.request.Properties)
	case "delay_level", "deliver_at":
		return d.skip("is not possible here: the message of a transaction becomes visible when that is committed; send a delayed one with POST /v1/messages")
	default:
		d.addHere("is not a field of this request")
		return d.json.SkipValue()
	}
}

func (d *decoder) kindName() error {
	if d.kind != "" {
		d.addHere("is given by the path here and must be left out")
		return d.json.SkipValue()
	}
	err := d.string(&d.request.Kind)
	if n := len(d.request.Kind); n > maxKindLength {
		d.addHere("has %d bytes, at most %d are allowed", n, maxKindLength)
	}
	return err
}

// id refuses an empty id, because its client would wrongly believe that it can retry safely.
func (d *decoder) id() error {
	wrong := len(d.wrong)
	err := d.string(&d.request.ID)
	if err == nil && d.request.ID == "" && len(d.wrong) == wrong {
		d.addHere("must not be empty")
	}
	return err
}

// string reads a JSON string.
func (d *decoder) string(to *string) error {
	value, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	if value.Kind() != '"' {
		d.addHere("must be a string")
		return nil
	}
	*to = string(text(value))
	return nil
}

// raw reads any JSON value whose depth and numbers are within the limits. The bytes stay as they were sent, because consumers of
// the message get them.
func (d *decoder) raw(to *json.RawMessage) error {
	value, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	end := int(d.json.InputOffset())
	*to = d.data[end-len(value) : end : end]
	if wrong := txn.CheckJSON(*to); wrong != nil {
		d.add(d.json.StackPointer()+jsontext.Pointer(wrong.Pointer), "%s", wrong.Message)
	}
	return nil
}

// argument reads any JSON value, and takes null for none.
func (d *decoder) argument(to *json.RawMessage) error {
	err := d.raw(to)
	if string(*to) == "null" {
		*to = nil
	}
	return err
}

// tag reads the tag. Null means none, here and for keys and properties, because many clients write it for fields that are not set.
func (d *decoder) tag(to *string) error {
	if d.json.PeekKind() == 'n' {
		return d.json.SkipValue()
	}
	return d.string(to)
}

func (d *decoder) keys(to *[]string) error {
	switch d.json.PeekKind() {
	case 'n':
		return d.json.SkipValue()
	case '[':
	default:
		return d.skip("must be an array of strings")
	}
	return d.each(func() error {
		var key string
		err := d.string(&key)
		*to = append(*to, key)
		return err
	})
}

func (d *decoder) properties(to *map[string]string) error {
	switch d.json.PeekKind() {
	case 'n':
		return d.json.SkipValue()
	case '{':
	default:
		return d.skip("must be an object of strings")
	}
	properties := make(map[string]string)
	*to = properties
	return d.each(func() error {
		quoted, err := d.json.ReadValue()
		if err != nil {
			return err
		}
		var value string
		name := string(text(quoted))
		err = d.string(&value)
		properties[name] = value
		return err
	})
}

// skip passes over a value of the wrong type.
func (d *decoder) skip(message string) error {
	err := d.json.SkipValue()
	if err == nil {
		d.addHere("%s", message)
	}
	return err
}

// text returns the text of a JSON string that the decoder has read and so checked. It may share quoted's memory.
func text(quoted jsontext.Value) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	unquoted, _ := jsontext.AppendUnquote([]byte(nil), quoted)
	return unquoted
}

// syntax adds why the body could not be read, in words that repeat nothing of the body.
func (d *decoder) syntax(err error) {
	if errors.Is(err, errStop) {
		return
	}
	at, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok: // io.EOF, before anything
		d.add("", "a JSON object is required as the body")
	case errors.Is(err, jsontext.ErrDuplicateName):
		d.add(at.JSONPointer, "is given more than once")
	case errors.Is(err, io.ErrUnexpectedEOF):
		d.add(at.JSONPointer, "the JSON ends before it is complete")
	case strings.Contains(at.Err.Error(), "max depth"): // the decoder's own limit is 10,000 levels; its error has no name
		d.add(at.JSONPointer, "is nested more than %d levels deep", txn.MaxJSONDepth)
	case d.badUTF8(at.ByteOffset):
		d.add(at.JSONPointer, "is not valid UTF-8, at byte %d", at.ByteOffset)
	default:
		d.add(at.JSONPointer, "is not valid JSON, at byte %d", at.ByteOffset)
	}
}

func (d *decoder) badUTF8(offset int64) bool {
	r, size := utf8.DecodeRune(d.data[min(int(offset), len(d.data)):])
	return r == utf8.RuneError && size == 1
}
