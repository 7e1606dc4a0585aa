package selector

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// byShardKey names the lane by the shard key, so that all messages of a key go to one lane.
const byShardKey = "shard_key"

// source is the place of the value that names a lane: selector_arg, unless key, header or pointer is set.
type source struct {
	key     bool
	header  string
	pointer *pointer
}

// parseSource reads the option by.
func parseSource(by string) (source, error) {
	kind, name, _ := strings.Cut(by, ":")
	switch {
	case by == "selector_arg":
		return source{}, nil
	case by == byShardKey:
		return source{key: true}, nil
	case kind == "header":
		if !isToken(name) {
			return source{}, errors.New("header: is followed by the name of a header, like header:X-Lane")
		}
		return source{header: name}, nil
	case kind == "payload":
		p, err := parsePointer(name)
		if err != nil {
			return source{}, fmt.Errorf("payload: is followed by a JSON Pointer, like payload:/tenant: %w", err)
		}
		return source{pointer: p}, nil
	}
	return source{}, errors.New("must be selector_arg, shard_key, header:NAME or payload:/json/pointer")
}

// isToken reports whether a text can be the name of a header (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// value is the value that names the lane. It refers to the request's bytes, so that nothing is copied.
type value struct {
	given bool
	text  string // of a header
	json  []byte // without quotes and escapes, of the others
}

// read returns the value, and the input for the selector within the lane.
func (s source) read(in txn.SelectorInput) (value, txn.SelectorInput, error) {
	switch {
	case s.key:
		return value{given: true, text: in.ShardKey}, in, nil
	case s.header != "":
		return s.fromHeader(in), in, nil
	case s.pointer != nil:
		v, err := s.fromPayload(in.Payload)
		return v, in, err
	default:
		return s.fromArg(in)
	}
}

func (s source) fromHeader(in txn.SelectorInput) value {
	if in.Header == nil {
		return value{}
	}
	text := in.Header(s.header)
	return value{given: text != "", text: text}
}

func (s source) fromPayload(payload []byte) (value, error) {
	if len(payload) == 0 {
		return value{}, nil
	}
	found, err := s.pointer.find(payload)
	if err != nil {
		return value{}, txn.Invalid(txn.FieldError{Pointer: "/payload", Message: "is not valid JSON"})
	}
	return s.fromJSON(found, "must be a string: it names the lane")
}

// fromArg takes a string, or {"lane": …, "arg": …} whose arg is the selector_arg within the lane.
func (s source) fromArg(in txn.SelectorInput) (value, txn.SelectorInput, error) {
	arg := jsontext.Value(bytes.TrimSpace(in.Arg))
	in.Arg = nil
	if arg.Kind() != '{' {
		v, err := s.fromJSON(arg, "must be a string that names the lane, or an object with lane and arg")
		return v, in, err
	}
	lane, inner, err := parseLaneArg(arg)
	if err != nil {
		return value{}, in, err
	}
	in.Arg = []byte(inner)
	if kind := lane.Kind(); kind != '"' && kind != 'n' && kind != 0 {
		return value{}, in, invalid("/lane", "must be a string: it names the lane")
	}
	v, err := s.fromJSON(lane, "")
	return v, in, err
}

// fromJSON takes a string as it is, and a missing field and null as no value. It refuses other types, because a number
// can be written in many ways.
func (s source) fromJSON(v jsontext.Value, message string) (value, error) {
	switch v.Kind() {
	case '"':
		text, err := unquote(v)
		if err != nil {
			return value{}, s.wrong("is not valid JSON")
		}
		return value{given: true, json: text}, nil
	case 'n', 0:
		return value{}, nil
	default:
		return value{}, s.wrong(message)
	}
}

// unquote returns the text of a JSON string. It copies only a string with escapes.
func unquote(quoted jsontext.Value) ([]byte, error) {
	if n := len(quoted); n >= 2 && quoted[n-1] == '"' && bytes.IndexByte(quoted[1:n-1], '"') < 0 && bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : n-1], nil
	}
	return jsontext.AppendUnquote([]byte(nil), quoted)
}

// wrong returns the error about the field that names the lane. A header has no pointer: the message names it.
func (s source) wrong(message string) error {
	switch {
	case s.key:
		return txn.Invalid(txn.FieldError{Pointer: "/shard_key", Message: message})
	case s.header != "":
		return txn.Invalid(txn.FieldError{Message: "the header " + s.header + " " + message})
	case s.pointer != nil:
		return txn.Invalid(txn.FieldError{Pointer: "/payload" + s.pointer.text, Message: message})
	default:
		return invalid("", "%s", message)
	}
}

// parseLaneArg reads the long form of a selector_arg that names a lane.
func parseLaneArg(arg jsontext.Value) (lane, inner jsontext.Value, err error) {
	reader := jsontext.NewDecoder(bytes.NewBuffer(arg))
	if _, err := reader.ReadToken(); err != nil {
		return nil, nil, invalid("", "is not valid JSON")
	}
	for reader.PeekKind() == '"' {
		name, err := reader.ReadToken()
		if err != nil {
			return nil, nil, decodeError(err)
		}
		member := name.String()
		v, err := reader.ReadValue()
		if err != nil {
			return nil, nil, decodeError(err)
		}
		switch member {
		case "lane":
			lane = v.Clone()
		case "arg":
			inner = v.Clone()
		default:
			return nil, nil, invalid(string(reader.StackPointer()), "is unknown: there are lane and arg")
		}
	}
	if _, err := reader.ReadToken(); err != nil {
		return nil, nil, decodeError(err)
	}
	return lane, inner, nil
}

// takesArg reports whether the selector within the lane sees only a part of selector_arg.
func (s source) takesArg() bool { return !s.key && s.header == "" && s.pointer == nil }
