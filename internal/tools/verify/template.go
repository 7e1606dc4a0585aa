package verify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Placeholders of templates. All are plain ASCII without characters that JSON escapes, so they may stand inside of
// strings; n is a number.
const (
	placeID        = "id"         // the transaction's id
	placeRun       = "run"        // the run's name
	placeN         = "n"          // the transaction's number, 0 to count-1
	placeKey       = "shard_key"  // its shard key
	placeAnchor    = "anchor"     // the id of an order that was committed before the load began
	placeAnchorKey = "anchor_key" // the shard key of that order
	placePad       = "pad:"       // {{pad:N}}: N letters
)

// maxPad bounds one {{pad:N}}.
const maxPad = 4 << 20

// template is text with placeholders, taken apart once.
type template struct {
	text  []string // one more than names
	names []string
	pads  []string // for names that pad, else empty
}

var placeholder = regexp.MustCompile(`\{\{\s*([a-z_]+(?::[0-9]+)?)\s*\}\}`)

func parseTemplate(text string) (*template, error) {
	t, at := &template{}, 0
	text = strings.TrimSpace(text) // spaces around a JSON value are not part of it, and the service drops them
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		name, pad := text[m[2]:m[3]], ""
		if size, ok := strings.CutPrefix(name, placePad); ok {
			n, err := strconv.Atoi(size)
			if err != nil || n > maxPad {
				return nil, fmt.Errorf("{{%s}}: at most %d are allowed", name, maxPad)
			}
			pad = strings.Repeat("x", n)
		} else if !slices.Contains([]string{placeID, placeRun, placeN, placeKey, placeAnchor, placeAnchorKey}, name) {
			return nil, fmt.Errorf("{{%s}} is no placeholder: there are id, run, n, shard_key, anchor, anchor_key, pad:N", name)
		}
		t.text, t.names, t.pads = append(t.text, text[at:m[0]]), append(t.names, name), append(t.pads, pad)
		at = m[1]
	}
	t.text = append(t.text, text[at:])
	if sample := t.appendTo(nil, func(string) string { return "1" }); !json.Valid(sample) {
		return nil, fmt.Errorf("it is not JSON once the placeholders are filled in: %.200s", sample)
	}
	return t, nil
}

// needs reports whether the template has one of the placeholders.
func (t *template) needs(names ...string) bool {
	return t != nil && slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(names, name) })
}

// appendTo appends the text with each placeholder's value.
func (t *template) appendTo(b []byte, value func(name string) string) []byte {
	for i, name := range t.names {
		b = append(b, t.text[i]...)
		if t.pads[i] != "" {
			b = append(b, t.pads[i]...)
		} else if !strings.HasPrefix(name, placePad) {
			b = append(b, value(name)...)
		}
	}
	return append(b, t.text[len(t.names)]...)
}
