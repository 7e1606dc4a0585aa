package selector

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// pointer is an RFC 6901 JSON Pointer below the root.
type pointer struct {
	text   string
	tokens []pointerToken
}

type pointerToken struct {
	name  string
	index int // as an index of an array; -1: none
}

var errPointer = errors.New("it begins with / and has ~ only as ~0 and ~1")

func parsePointer(text string) (*pointer, error) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return nil, errPointer
	}
	p := &pointer{text: text}
	for token := range strings.SplitSeq(rest, "/") {
		escapes := strings.Count(token, "~0") + strings.Count(token, "~1")
		if strings.Count(token, "~") != escapes {
			return nil, errPointer
		}
		name := strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		p.tokens = append(p.tokens, pointerToken{name, arrayIndex(name)})
	}
	return p, nil
}

// arrayIndex returns the index that a token can be: digits without a leading zero.
func arrayIndex(name string) int {
	i, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(i) != name {
		return -1
	}
	return i
}

// walker reads JSON. It is reused, because allocations are most of the cost of a decoder.
type walker struct {
	json   jsontext.Decoder
	buffer bytes.Buffer
}

var walkers = sync.Pool{New: func() any { return new(walker) }}

// maxKept is the size of documents, in bytes, up to which a walker is reused: larger ones may have made it large.
const maxKept = 64 << 10

func (w *walker) open(doc []byte) {
	w.buffer = *bytes.NewBuffer(doc)
	w.json.Reset(&w.buffer, jsontext.AllowDuplicateNames(true))
}

// find returns the value that the pointer names, as a part of doc, or nil when there is none. It reads no further, so
// an error is about the document up to that place.
func (p *pointer) find(doc []byte) (jsontext.Value, error) {
	w := walkers.Get().(*walker) //nolint:forcetypeassert // the pool holds nothing else
	w.open(doc)
	defer func() {
		if len(doc) <= maxKept {
			w.open(nil)
			walkers.Put(w)
		}
	}()
	for _, token := range p.tokens {
		if there, err := w.enter(token); err != nil || !there {
			return nil, err
		}
	}
	v, err := w.json.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(w.json.InputOffset())
	return doc[end-len(v) : end : end], nil
}

// enter goes to the start of the member or element.
func (w *walker) enter(token pointerToken) (bool, error) {
	switch w.json.PeekKind() {
	case '{':
		return w.member(token.name)
	case '[':
		return w.element(token.index)
	default:
		return false, w.json.SkipValue()
	}
}

func (w *walker) member(want string) (bool, error) {
	if _, err := w.json.ReadToken(); err != nil {
		return false, err
	}
	for w.json.PeekKind() == '"' {
		quoted, err := w.json.ReadValue()
		if err != nil {
			return false, err
		}
		name, err := unquote(quoted)
		if err != nil {
			return false, err
		}
		if string(name) == want {
			return true, nil
		}
		if err := w.json.SkipValue(); err != nil {
			return false, err
		}
	}
	_, err := w.json.ReadToken()
	return false, err
}

func (w *walker) element(want int) (bool, error) {
	if _, err := w.json.ReadToken(); err != nil {
		return false, err
	}
	for i := 0; ; i++ {
		switch kind := w.json.PeekKind(); {
		case kind == ']' || kind == 0:
			_, err := w.json.ReadToken()
			return false, err
		case i == want:
			return true, nil
		}
		if err := w.json.SkipValue(); err != nil {
			return false, err
		}
	}
}
