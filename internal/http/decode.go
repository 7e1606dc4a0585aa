package http

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/txsvc/txsvc/internal/strictjson"
	"github.com/txsvc/txsvc/internal/txn"
)

// maxFieldErrors is how many errors of one request are reported.
const maxFieldErrors = 32

// maxKindLength is the longest name of a kind, in bytes, because answers repeat it.
const maxKindLength = 255

// decoder reads one transaction request. It is strict: a field that is unknown, given twice or of another type is an error that
// names the field, and so is anything after the object. The domain checks what the values mean.
type decoder struct {
	json    *strictjson.Reader
	kind    string // given by the path; "" when the body has to name it
	request txn.Request
	wrong   []txn.FieldError
}

// decodeRequest returns the request in data. Its payload and arguments are parts of data, byte for byte as sent. Errors
// are *txn.Error with CodeInvalidRequest.
func decodeRequest(data []byte, kind string) (txn.Request, error) {
	reader := strictjson.Open(data)
	defer reader.Close()
	d := &decoder{json: reader, kind: kind, request: txn.Request{Kind: kind}}
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

func (d *decoder) add(pointer, format string, args ...any) {
	d.wrong = append(d.wrong, txn.FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// addHere adds an error about what was read last.
func (d *decoder) addHere(format string, args ...any) {
	d.add(d.json.Pointer(), format, args...)
}

// errStop ends the reading of a body whose errors are in d.wrong.
var errStop = errors.New("stop")

// object reads the whole body. field reads one member, name and value.
func (d *decoder) object(field func() error) error {
	if kind := d.json.Kind(); kind != '{' && kind != 0 {
		d.add("", "must be a JSON object")
		return errStop
	}
	if err := d.each(field); err != nil {
		return err
	}
	return d.json.End()
}

// each reads an object or an array. read reads one member, name and value, or one element.
func (d *decoder) each(read func() error) error {
	return d.json.Each(func() error {
		if len(d.wrong) >= maxFieldErrors {
			return errStop
		}
		return read()
	})
}

// field reads one field of the request, name and value.
func (d *decoder) field() error {
	name, err := d.json.Name()
	if err != nil {
		return err
	}
	switch string(name) {
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
		return d.json.Skip()
	}
}

func (d *decoder) kindName() error {
	if d.kind != "" {
		d.addHere("is given by the path here and must be left out")
		return d.json.Skip()
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
	text, ok, err := d.json.Text()
	if err != nil {
		return err
	}
	if !ok {
		d.addHere("must be a string")
		return nil
	}
	*to = string(text)
	return nil
}

// raw reads any JSON value whose depth and numbers are within the limits. The bytes stay as they were sent, because consumers of
// the message get them.
func (d *decoder) raw(to *json.RawMessage) error {
	value, err := d.json.Raw()
	if err != nil {
		return err
	}
	*to = value
	if wrong := strictjson.Check(value); wrong != nil {
		d.add(d.json.Pointer()+wrong.Pointer, "%s", wrong.Message)
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
	if d.json.Kind() == 'n' {
		return d.json.Skip()
	}
	return d.string(to)
}

func (d *decoder) keys(to *[]string) error {
	switch d.json.Kind() {
	case 'n':
		return d.json.Skip()
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
	switch d.json.Kind() {
	case 'n':
		return d.json.Skip()
	case '{':
	default:
		return d.skip("must be an object of strings")
	}
	properties := make(map[string]string)
	*to = properties
	return d.each(func() error {
		text, err := d.json.Name()
		if err != nil {
			return err
		}
		var value string
		name := string(text)
		err = d.string(&value)
		properties[name] = value
		return err
	})
}

// skip passes over a value of the wrong type.
func (d *decoder) skip(message string) error {
	err := d.json.Skip()
	if err == nil {
		d.addHere("%s", message)
	}
	return err
}

// syntax adds why the body could not be read.
func (d *decoder) syntax(err error) {
	wrong, ok := errors.AsType[*strictjson.Error](err)
	switch {
	case !ok: // errStop
	case wrong.Fault == strictjson.Empty:
		d.add("", "a JSON object is required as the body")
	case wrong.Fault == strictjson.Trailing:
		d.add("", "there is something after the JSON object, at byte %d", wrong.Offset)
	default:
		d.add(wrong.Pointer, "%s", wrong.Message)
	}
}
