package remoting

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanJSONHeader reads a header in the form that Java writes: no spaces, no escapes, numbers without fraction. For any
// other text, valid or not, ok is false. The values are parts of s.
func scanJSONHeader(s string) (frame Frame, ok bool) {
	in := jsonScanner{rest: s}
	frame.Codec = CodecJSON
	in.object(func(key string) {
		switch key {
		case "code":
			frame.Code = int(in.number())
		case "opaque":
			frame.Opaque = int32(in.number())
		case "flag":
			frame.Flag = int32(in.number())
		case "version":
			frame.Version = int(in.number())
		case "remark":
			frame.Remark, _ = in.text()
		case "language", "serializeTypeCurrentRPC":
			in.text()
		case "extFields":
			frame.Fields = in.fields()
		default:
			in.bad = true
		}
	})
	return frame, !in.bad && in.rest == ""
}

// jsonScanner takes JSON values off the front of rest.
type jsonScanner struct {
	rest string
	bad  bool
}

// object calls member for each key. member has to read the value.
func (in *jsonScanner) object(member func(key string)) {
	in.expect('{')
	if in.accept('}') {
		return
	}
	for !in.bad {
		key, isText := in.text()
		in.bad = in.bad || !isText
		in.expect(':')
		if in.bad {
			return
		}
		member(key)
		if in.accept('}') {
			return
		}
		in.expect(',')
	}
}

// fields reads extFields; a member that is null is left out.
func (in *jsonScanner) fields() []Field {
	list := make([]Field, 0, 8)
	in.object(func(key string) {
		value, isText := in.text()
		in.bad = in.bad || len(list) == maxFields
		if isText {
			list = append(list, Field{Key: key, Value: value})
		}
	})
	return list
}

// text reads a string, or null: then isText is false.
func (in *jsonScanner) text() (value string, isText bool) {
	if rest, null := strings.CutPrefix(in.rest, "null"); null {
		in.rest = rest
		return "", false
	}
	in.expect('"')
	end := strings.IndexByte(in.rest, '"')
	if in.bad || end < 0 || !plain(in.rest[:end]) {
		in.bad = true
		return "", false
	}
	value, in.rest = in.rest[:end], in.rest[end+1:]
	return value, true
}

// plain reports whether a JSON string has no escapes, so that its bytes are its value.
func plain(s string) bool {
	ascii := true
	for i := range len(s) {
		if s[i] == '\\' || s[i] < 0x20 {
			return false
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s)
}

func (in *jsonScanner) number() int64 {
	end := 0
	for end < len(in.rest) && (in.rest[end] == '-' || in.rest[end] >= '0' && in.rest[end] <= '9') {
		end++
	}
	digits := in.rest[:end]
	in.rest = in.rest[end:]
	n, err := strconv.ParseInt(digits, 10, 32)
	// JSON has no leading zeros.
	in.bad = in.bad || err != nil || len(digits) > 1 && strings.TrimLeft(digits, "-")[0] == '0'
	return n
}

func (in *jsonScanner) accept(c byte) bool {
	if in.bad || in.rest == "" || in.rest[0] != c {
		return false
	}
	in.rest = in.rest[1:]
	return true
}

func (in *jsonScanner) expect(c byte) {
	if !in.accept(c) {
		in.bad = true
	}
}
