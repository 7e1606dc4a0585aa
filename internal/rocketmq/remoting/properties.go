package remoting

import (
	"fmt"
	"strings"
)

// Names of RocketMQ's own message properties (MessageConst).
const (
	PropKeys        = "KEYS"
	PropTags        = "TAGS"
	PropUniqKey     = "UNIQ_KEY"
	PropShardingKey = "SHARDING_KEY"
	PropPrepared    = "TRAN_MSG"
	PropGroup       = "PGROUP"
	PropRealTopic   = "REAL_TOPIC"
	PropRealQueue   = "REAL_QID"
	PropCheckTimes  = "TRANSACTION_CHECK_TIMES"
	PropImmunity    = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	PropDelay       = "DELAY"            // the level, a number
	PropDeliverAt   = "TIMER_DELIVER_MS" // milliseconds since 1970
)

// maxProperties is the limit of a broker: the length is a signed 16-bit number, and the broker itself adds about 100
// bytes to a half message.
const maxProperties = 1<<15 - 1

// Property is one property of a message.
type Property struct{ Name, Value string }

// Properties are a message's properties in the order of the wire.
type Properties []Property

// Get returns a property's value, or "" when the property is missing. Of several with one name the last counts, as in
// RocketMQ.
func (p Properties) Get(name string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].Name == name {
			return p[i].Value
		}
	}
	return ""
}

// check returns why p cannot be sent. RocketMQ silently drops a property with an empty name or value, and takes a
// separator inside for its end.
func (p Properties) check() error {
	size := 0
	for i := range p {
		if p[i].Name == "" || p[i].Value == "" {
			return fmt.Errorf("%w: property %q is empty", ErrInvalid, p[i].Name)
		}
		if hasSeparator(p[i].Name) || hasSeparator(p[i].Value) {
			return fmt.Errorf("%w: property %q has a separator in it", ErrInvalid, p[i].Name)
		}
		size += len(p[i].Name) + len(p[i].Value) + 2
	}
	if size > maxProperties {
		return fmt.Errorf("%w: properties of %d bytes", ErrInvalid, size)
	}
	return nil
}

func hasSeparator(s string) bool {
	return strings.IndexByte(s, 1) >= 0 || strings.IndexByte(s, 2) >= 0
}

// Encode returns the wire form, name \x01 value \x02 and so on.
func (p Properties) Encode() string {
	var b strings.Builder
	for i := range p {
		b.WriteString(p[i].Name)
		b.WriteByte(1)
		b.WriteString(p[i].Value)
		b.WriteByte(2)
	}
	return b.String()
}

// ParseProperties reads the wire form. Like RocketMQ it skips parts that are not a name and a value, and accepts a
// missing separator at the end.
func ParseProperties(s string) Properties {
	var list Properties
	for s != "" {
		var pair string
		pair, s, _ = strings.Cut(s, "\x02")
		name, value, ok := strings.Cut(pair, "\x01")
		if !ok || name == "" || value == "" {
			continue
		}
		if list == nil {
			list = make(Properties, 0, strings.Count(s, "\x02")+1)
		}
		list = append(list, Property{Name: name, Value: value})
	}
	return list
}
