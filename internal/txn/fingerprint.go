package txn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Fingerprint identifies the content of a request, without its id: 16 bytes of the SHA-256 of its meaning (see canonical), in
// which null and defaults equal missing fields.
type Fingerprint []byte

// same reports whether both belong to the same request.
func (f Fingerprint) same(other Fingerprint) bool { return f != nil && bytes.Equal(f, other) }

// fingerprintLength is the length of a Fingerprint, in bytes: nobody but the owner of an id can gain by a collision.
const fingerprintLength = 16

// fingerprint is about the request as the client sent it. A tag that is the kind's own is as good as none: not the other way
// round, since the kind's may change with the configuration.
func (r *Request) fingerprint(kind *Kind) Fingerprint {
	if r.Tag == kind.Tag {
		return r.withTag("")
	}
	return r.withTag(r.Tag)
}

// fingerprintFor is the fingerprint to be compared with that of t. The kind may have had another tag when t was stored, so a
// request that names a tag may also be one that was stored without it, or with it.
func (r *Request) fingerprintFor(kind *Kind, t *Transaction) Fingerprint {
	own := r.fingerprint(kind)
	if r.Tag == "" || own.same(t.Fingerprint) {
		return own
	}
	if spelled := r.withTag(r.Tag); spelled.same(t.Fingerprint) {
		return spelled
	}
	if bare := r.withTag(""); r.Tag == t.Tag && bare.same(t.Fingerprint) {
		return bare
	}
	return own
}

func (r *Request) withTag(tag string) Fingerprint {
	scratch := fingerprintScratch.Get().(*canonical) //nolint:forcetypeassert // the pool holds nothing else
	defer scratch.free()
	b := slices.Grow(scratch.out[:0], len(r.Payload)+len(r.SelectorArg)+len(r.LocalArg)+512)
	b = r.appendFields(b, scratch, tag, presentJSON(r.SelectorArg), presentJSON(r.LocalArg))
	value := sha256.Sum256(b)
	scratch.out = b
	return value[:fingerprintLength]
}

// presentJSON returns nil for null: that somebody says that there is nothing does not make it something.
func presentJSON(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// appendFields appends everything that identifies a request. It must not change, because rows have what came of it.
func (r *Request) appendFields(b []byte, c *canonical, tag string, selectorArg, localArg []byte) []byte {
	b = appendField(b, r.Kind)
	b = appendField(b, r.ShardKey)
	b = c.value(b, r.Payload)
	b = c.value(b, selectorArg)
	b = c.value(b, localArg)
	b = appendField(b, tag)
	b = appendField(b, strconv.Itoa(len(r.Keys)))
	for _, key := range r.Keys {
		b = appendField(b, key)
	}
	if len(r.Properties) == 0 {
		return b
	}
	for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
		b = appendField(b, name)
		b = appendField(b, r.Properties[name])
	}
	return b
}

// appendField appends a field so that no two lists of fields give the same bytes.
func appendField[T string | []byte](b []byte, field T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(field))), field...)
}

// canonical writes JSON in one way for each value: without white space, strings with the fewest escapes, the members of
// objects sorted by name. Numbers stay as they are written, so 1.0 differs from 1, because PostgreSQL's jsonb and many
// readers distinguish them.
type canonical struct {
	src     []byte
	at      int
	out     []byte
	members []member
	swap    []byte
	odd     bool // src is no JSON
}

// member is a member of an object, as positions in out.
type member struct{ start, nameEnd, end int }

var fingerprintScratch = sync.Pool{New: func() any { return new(canonical) }}

// maxKeptScratch bounds a buffer that is reused, in bytes.
const maxKeptScratch = 64 << 10

func (c *canonical) free() {
	if cap(c.out) <= maxKeptScratch && cap(c.swap) <= maxKeptScratch {
		c.src = nil
		fingerprintScratch.Put(c)
	}
}

// raw appends JSON as it is; nil and empty differ.
func (*canonical) raw(b, raw []byte) []byte {
	if raw == nil {
		return binary.BigEndian.AppendUint64(b, ^uint64(0))
	}
	return appendField(b, raw)
}

// value appends JSON in its canonical form. What is no JSON, which only callers in Go can bring, is left as it is.
func (c *canonical) value(b, raw []byte) []byte {
	if raw == nil {
		return c.raw(b, raw)
	}
	start := len(b)
	c.src, c.at, c.odd, c.members = raw, 0, false, c.members[:0]
	c.out = b
	c.out = append(c.out, 0, 0, 0, 0, 0, 0, 0, 0) // for the length
	c.any()
	if c.space(); c.odd || c.at != len(c.src) {
		return c.raw(c.out[:start], raw)
	}
	binary.BigEndian.PutUint64(c.out[start:], uint64(len(c.out)-start-8)) //nolint:gosec // a length
	return c.out
}

// space passes over white space, and returns what follows; 0 at the end.
func (c *canonical) space() byte {
	for ; c.at < len(c.src); c.at++ {
		switch c.src[c.at] {
		case ' ', '\t', '\r', '\n':
		default:
			return c.src[c.at]
		}
	}
	return 0
}

func (c *canonical) any() {
	switch c.space() {
	case '{':
		c.object()
	case '[':
		c.array()
	case '"':
		c.string()
	default:
		c.word()
	}
}

// take passes over the byte b, which has to be the next, and writes it.
func (c *canonical) take(b byte) {
	if c.space() != b {
		c.odd, c.at = true, len(c.src)
		return
	}
	c.out = append(c.out, b)
	c.at++
}

func (c *canonical) array() {
	for c.take('['); c.space() != ']' && !c.odd; {
		c.any()
		if c.space() != ']' {
			c.take(',')
		}
	}
	c.take(']')
}

func (c *canonical) object() {
	c.take('{')
	first, sorted := len(c.members), true
	for c.space() != '}' && !c.odd {
		m := member{start: len(c.out)}
		if c.space() != '"' {
			c.odd, c.at = true, len(c.src)
			break
		}
		c.string()
		m.nameEnd = len(c.out)
		c.take(':')
		c.any()
		m.end = len(c.out)
		if before := len(c.members) - 1; before >= first && c.compare(c.members[before], m) > 0 {
			sorted = false
		}
		c.members = append(c.members, m)
		if c.space() == ',' {
			c.at++
		} else if c.space() != '}' {
			c.odd, c.at = true, len(c.src)
		}
	}
	if !sorted && !c.odd {
		c.sort(c.members[first:])
	}
	c.members = c.members[:first]
	c.take('}')
}

func (c *canonical) compare(a, b member) int {
	return bytes.Compare(c.out[a.start:a.nameEnd], c.out[b.start:b.nameEnd])
}

// sort puts the members, which are all of one object, into the order of their names.
func (c *canonical) sort(members []member) {
	start := members[0].start
	slices.SortFunc(members, c.compare)
	c.swap = c.swap[:0]
	for _, m := range members {
		c.swap = append(c.swap, c.out[m.start:m.end]...)
	}
	copy(c.out[start:], c.swap)
}

func (c *canonical) string() {
	start := c.at
	for c.at++; c.at < len(c.src) && c.src[c.at] != '"'; c.at++ {
		if c.src[c.at] == '\\' {
			c.escaped(start)
			return
		}
	}
	if c.at >= len(c.src) {
		c.odd = true
		return
	}
	c.at++
	c.out = append(c.out, c.src[start:c.at]...)
}

// escaped writes the string that begins at start, and has escapes, with those that it needs.
func (c *canonical) escaped(start int) {
	for ; c.at < len(c.src) && c.src[c.at] != '"'; c.at++ {
		if c.src[c.at] == '\\' {
			c.at++
		}
	}
	if c.at >= len(c.src) {
		c.odd, c.at = true, len(c.src)
		return
	}
	c.at++
	text, err := jsontext.AppendUnquote(nil, c.src[start:c.at])
	if err == nil {
		c.out, err = jsontext.AppendQuote(c.out, text)
	}
	c.odd = c.odd || err != nil
}

// word copies a number, true, false or null.
func (c *canonical) word() {
	start := c.at
	for c.at < len(c.src) && !ends(c.src[c.at]) {
		c.at++
	}
	c.odd = c.odd || c.at == start
	c.out = append(c.out, c.src[start:c.at]...)
}

// ends reports whether the byte ends a number or a literal in front of it.
func ends(b byte) bool {
	switch b {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}', '[', '{', '"':
		return true
	}
	return false
}
