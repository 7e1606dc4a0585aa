package strictjson

import "encoding/json"

// Builder makes Go values of JSON: O of objects, []any of arrays, what Number returns of numbers, and string, bool and nil.
type Builder[O any] struct {
	Object func() O                                 // returns an empty object
	Add    func(object O, name string, value any) O // adds a member; members come in the order of the text
	Number func(text json.Number) (any, error)      // gets a number within the limits
}

// Decode returns the value of a text. Errors are *Error, or of Number.
func (b *Builder[O]) Decode(text []byte) (any, error) {
	r := Open(text)
	defer r.Close()
	value, err := b.value(r)
	if err != nil {
		return nil, err
	}
	return value, r.End()
}

func (b *Builder[O]) value(r *Reader) (any, error) {
	switch r.Kind() {
	case '{':
		return b.object(r)
	case '[':
		return b.array(r)
	case '"':
		text, _, err := r.Text()
		return string(text), err
	case '0':
		return b.number(r)
	default:
		literal, err := r.Raw() // the error of what cannot be read comes from here, too
		if err != nil || literal[0] == 'n' {
			return nil, err
		}
		return literal[0] == 't', nil
	}
}

func (b *Builder[O]) object(r *Reader) (any, error) {
	object := b.Object()
	err := r.Each(func() error {
		text, err := r.Name()
		if err != nil {
			return err
		}
		name := string(text)
		value, err := b.value(r)
		object = b.Add(object, name, value)
		return err
	})
	return object, err
}

func (b *Builder[O]) array(r *Reader) (any, error) {
	array := []any{}
	err := r.Each(func() error {
		value, err := b.value(r)
		array = append(array, value)
		return err
	})
	return array, err
}

func (b *Builder[O]) number(r *Reader) (any, error) {
	text, err := r.Raw()
	if err != nil {
		return nil, err
	}
	if _, ok := writtenOut(text); !ok {
		return nil, largeNumber(r.Pointer())
	}
	return b.Number(json.Number(text))
}
