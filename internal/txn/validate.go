package txn

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a request. MaxMessageSize is the broker's default maxMessageSize; the body and the properties together stay
// below it. MaxPropertiesSize is the limit of the broker's message format (a signed 16-bit length), less the properties
// that the service adds.
const (
	MaxIDLength       = 255
	MaxShardKeyLength = 255
	MaxMessageSize    = 4 << 20
	MaxPropertiesSize = 32767 - 2048
)

// fieldErrors collects the mistakes in a request.
type fieldErrors []FieldError

func (f *fieldErrors) add(pointer, format string, args ...any) {
	*f = append(*f, FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// validate checks all of a request that does not need the broker or the database.
func (r *Request) validate(kind *Kind) error {
	if err := r.checkSize(); err != nil { // first, because it bounds the other checks
		return err
	}
	var errs fieldErrors
	checkID(&errs, r.ID)
	checkShardKey(&errs, r.ShardKey)
	if len(r.Payload) == 0 {
		errs.add("/payload", "is required")
	}
	r.labels().check(&errs, "")
	if len(errs) > 0 {
		return Invalid(errs...)
	}
	if parser, ok := kind.Schema.(Parser); ok {
		if r.Parsed, ok = parser.Parse(r.Payload); ok {
			return nil
		}
		r.Parsed = nil
	}
	if kind.Schema != nil {
		if wrong := kind.Schema.Validate(r.Payload); len(wrong) > 0 {
			for i := range wrong {
				wrong[i].Pointer = "/payload" + wrong[i].Pointer
			}
			return Invalid(wrong...)
		}
	}
	return nil
}

func checkID(errs *fieldErrors, id string) {
	if len(id) > MaxIDLength {
		errs.add("/id", "has %d characters, at most %d are allowed", len(id), MaxIDLength)
	}
	if id == "." || id == ".." {
		errs.add("/id", "must not be . or ..: clients take these out of a path (RFC 3986, section 5.2.4), and could not ask for the transaction")
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			errs.add("/id", "must be printable ASCII without spaces; character %d is not", i+1)
			return
		}
	}
}

func checkShardKey(errs *fieldErrors, key string) {
	if key == "" {
		errs.add("/shard_key", "is required and must not be empty")
		return
	}
	if n := utf8.RuneCountInString(key); n > MaxShardKeyLength {
		errs.add("/shard_key", "has %d characters, at most %d are allowed", n, MaxShardKeyLength)
	}
	checkText(errs, "/shard_key", key)
}

func checkTag(errs *fieldErrors, pointer, tag string) {
	if len(tag) > 127 {
		errs.add(pointer, "has %d bytes, at most 127 are allowed", len(tag))
	}
	if strings.Contains(tag, "||") || strings.TrimSpace(tag) != tag || tag == "*" {
		errs.add(pointer, "must not contain ||, begin or end with a space, or be *: consumers could not subscribe to it")
	}
	checkText(errs, pointer, tag)
}

func checkKeys(errs *fieldErrors, within string, keys []string) {
	for i, key := range keys {
		pointer := within + "/" + strconv.Itoa(i)
		if key == "" || strings.ContainsAny(key, " \t\r\n") {
			errs.add(pointer, "must not be empty or contain spaces: RocketMQ separates keys with them")
		}
		checkText(errs, pointer, key)
	}
}

func checkProperties(errs *fieldErrors, within string, properties map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		pointer := string(jsontext.Pointer(within).AppendToken(name))
		switch {
		case name == "":
			errs.add(pointer, "a property needs a name")
		case reserved(name) != "":
			errs.add(pointer, "the name %s is reserved: %s", name, reserved(name))
		case properties[name] == "":
			errs.add(pointer, "must not be empty: RocketMQ drops properties without a value")
		}
		checkText(errs, pointer, name)
		checkText(errs, pointer, properties[name])
	}
}

// checkText refuses what a RocketMQ property cannot hold (\x01 and \x02 are its separators) or PostgreSQL's text cannot
// (\x00).
func checkText(errs *fieldErrors, pointer, text string) {
	if strings.ContainsAny(text, "\x00\x01\x02") {
		errs.add(pointer, "must not contain the characters U+0000, U+0001 or U+0002")
	}
}

// checkSize refuses requests that the broker would refuse later because of their size.
func (r *Request) checkSize() error {
	properties, tooMany := r.labels().size("", len(r.ID)+len(r.ShardKey), ", id and shard key")
	if tooMany != nil {
		return Invalid(*tooMany)
	}
	if size := len(r.Payload) + properties; size > MaxMessageSize {
		return Errorf(CodePayloadTooLarge, "payload and properties have %d bytes, the broker accepts %d", size, MaxMessageSize)
	}
	return nil
}

func (r *Request) labels() *Labels { return &Labels{r.Tag, r.Keys, r.Properties} }
