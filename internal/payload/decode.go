package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/txsvc/txsvc/internal/txn"
)

// decodeError says why a text cannot be decoded, and where.
type decodeError struct{ pointer, message string }

func (e *decodeError) Error() string { return strings.TrimSpace(e.pointer + " " + e.message) }

// decode returns the value with its numbers as json.Number. Names that occur twice in an object, and bytes that are not
// UTF-8, are errors.
func decode(text []byte) (any, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	value, err := decodeValue(decoder)
	if err != nil {
		return nil, describe(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &decodeError{message: "holds more than one value"}
	}
	return value, nil
}

func describe(err error) error {
	if e, ok := errors.AsType[*decodeError](err); ok {
		return e
	}
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return &decodeError{string(syntactic.JSONPointer), "is there twice"}
	}
	return &decodeError{message: "is not valid JSON"}
}

func decodeValue(decoder *jsontext.Decoder) (any, error) {
	token, err := decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return decodeObject(decoder)
	case '[':
		return decodeArray(decoder)
	case '0':
		return decodeNumber(decoder, token.String())
	case '"':
		return token.String(), nil
	case 't', 'f':
		return token.Bool(), nil
	default:
		return nil, nil // null
	}
}

func decodeObject(decoder *jsontext.Decoder) (any, error) {
	object := make(map[string]any)
	for decoder.PeekKind() != '}' {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		if object[name], err = decodeValue(decoder); err != nil {
			return nil, err
		}
	}
	_, err := decoder.ReadToken()
	return object, err
}

func decodeArray(decoder *jsontext.Decoder) (any, error) {
	array := []any{}
	for decoder.PeekKind() != ']' {
		item, err := decodeValue(decoder)
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := decoder.ReadToken()
	return array, err
}

func decodeNumber(decoder *jsontext.Decoder, text string) (any, error) {
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(text[i+1:]); err != nil {
			exponent = txn.MaxExponent + 1
		}
	}
	// Exact arithmetic costs time for each digit, and 1e999999 has a million.
	if len(text) > txn.MaxNumberLength || exponent > txn.MaxExponent || exponent < -txn.MaxExponent {
		return nil, &decodeError{string(decoder.StackPointer()), "is a number with too many digits: at most " +
			strconv.Itoa(txn.MaxNumberLength) + " characters and an exponent of at most " + strconv.Itoa(txn.MaxExponent) + " are checked"}
	}
	return json.Number(text), nil
}
