package strictjson

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a JSON value. Consumers, and PostgreSQL, have limits of their own: many parsers stop at 64 to 1,000
// levels, and jsonb writes each number out, so that the 9 bytes of 1e131071 become 131,072.
const (
	MaxDepth        = 128      // levels of arrays and objects
	MaxNumberLength = 1000     // characters of one number
	MaxExponent     = 400      // of one number, in both directions; that of the largest double is 308
	MaxWrittenOut   = 16 << 20 // bytes that the numbers of one value have more when they are written without exponents
)

// Check returns the first place, relative to the value, where valid JSON is beyond a limit, or nil. It reads the value once, and
// allocates only when something is wrong.
func Check(value []byte) *Error {
	depth, more := 0, 0
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			for i++; i < len(value) && value[i] != '"'; i++ {
				if value[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return tooDeep(pointerAt(value, i))
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			start := i
			for i+1 < len(value) && isNumberByte(value[i+1]) {
				i++
			}
			number := value[start : i+1]
			length, ok := writtenOut(number)
			if !ok {
				return largeNumber(pointerAt(value, start))
			}
			if more += max(0, length-len(number)); more > MaxWrittenOut {
				return &Error{Fault: LargeNumber, Pointer: pointerAt(value, start), Message: fmt.Sprintf(
					"the numbers up to here have more than %d bytes when they are written without exponents", MaxWrittenOut)}
			}
		}
	}
	return nil
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// writtenOut returns how many bytes a number has without an exponent; false when it is beyond the limits.
func writtenOut(number []byte) (int, bool) {
	if len(number) > MaxNumberLength {
		return 0, false
	}
	mantissa, exponent := number, 0
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(number[e+1:])); err != nil || exponent > MaxExponent || exponent < -MaxExponent {
			return 0, false
		}
		mantissa = number[:e]
	}
	whole, fraction, _ := bytes.Cut(bytes.TrimPrefix(mantissa, []byte("-")), []byte("."))
	const signAndPoint = 2
	return signAndPoint + max(len(whole)+exponent, 1) + max(len(fraction)-exponent, 0), true
}

// pointerAt returns the JSON Pointer of the value that begins at the offset.
func pointerAt(value []byte, offset int) string {
	pointer := ""
	decoder := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for decoder.InputOffset() <= int64(offset) {
		if _, err := decoder.ReadToken(); err != nil {
			break
		}
		pointer = string(decoder.StackPointer())
	}
	return pointer
}
