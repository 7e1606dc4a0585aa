package payload

import (
	"encoding/json"
	"errors"

	"github.com/txsvc/txsvc/internal/strictjson"
)

// tree has objects as maps and numbers as json.Number, as the validator wants them.
var tree = strictjson.Builder[map[string]any]{
	Object: func() map[string]any { return make(map[string]any) },
	Add: func(object map[string]any, name string, value any) map[string]any {
		object[name] = value
		return object
	},
	Number: func(text json.Number) (any, error) { return text, nil },
}

// decode returns the value of a payload or of a schema's file. The error says no more of broken JSON than that it is broken.
func decode(text []byte) (any, *strictjson.Error) {
	value, err := tree.Decode(text)
	if err == nil {
		return value, nil
	}
	wrong := &strictjson.Error{Message: "is not valid JSON"}
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		switch e.Fault {
		case strictjson.NameTwice:
			wrong.Pointer, wrong.Message = e.Pointer, "is there twice"
		case strictjson.LargeNumber, strictjson.TooDeep:
			wrong = e
		case strictjson.Trailing:
			wrong.Message = "holds more than one value"
		}
	}
	return nil, wrong
}
