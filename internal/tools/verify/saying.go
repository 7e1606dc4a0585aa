package verify

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The texts of a saying, in the order of textNames.
const (
	sayKind = iota
	sayShardKey
	sayTopic
	sayTag
	saySelector
	sayLane
	sayReason
	sayMessage // of a rejection, as the next two
	saySQLState
	sayConstraint
	sayTexts
)

var textNames = [sayTexts]string{
	"kind", "shard_key", "topic", "tag", "route.selector", "route.lane", "route.reason", "the rejection's message", "sqlstate", "constraint",
}

// saying has the parts of an answer about a decided transaction that must be the same in every answer and in the row.
// Queue and message id are compared apart, and the delivery may change. In memory there is only its hash; the journal's
// file has the beginning of each value.
type saying struct {
	texts            [sayTexts]string
	created, decided int64  // microseconds; 0: not said
	result           string // JSON, in its canonical form
}

func (s *saying) setResult(text jsontext.Value) {
	if text = slices.Clone(text); text.Canonicalize() != nil || text.Kind() == 'n' { // spaces and the order of names do not matter
		text = nil
	}
	s.result = string(text)
}

// hash is never 0.
func (s *saying) hash() uint64 {
	times := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(s.created)), uint64(s.decided))
	t := &s.texts
	list := []string{t[sayKind], t[sayShardKey], t[sayTopic], t[sayTag], t[saySelector], t[sayReason], s.result, string(times)}
	if t[sayLane] != "" { // older journals have none
		list = append(list, t[sayLane])
	}
	return hashOf(list...)
}

// Limits of the journal's file: bytes of a value, and number of different texts.
const (
	maxSaidText   = 200
	maxSaidResult = 64
	maxTexts      = 50_000
)

// differences names the fields in which two sayings differ, with both values.
func (s *saying) differences(other *saying, here, there string) (list []string) {
	add := func(name, a, b string) {
		if a != b {
			list = append(list, fmt.Sprintf("%s: %.100q in %s, %.100q in %s", name, a, here, b, there))
		}
	}
	for i, name := range textNames {
		add(name, clipTo(s.texts[i], maxSaidText), clipTo(other.texts[i], maxSaidText))
	}
	add("result", clipTo(s.result, maxSaidResult), clipTo(other.result, maxSaidResult))
	add("created_at", instant(s.created), instant(other.created))
	add("decided_at", instant(s.decided), instant(other.decided))
	return list
}

func clipTo(text string, most int) string { return text[:min(len(text), most)] }

func instant(micros int64) string {
	if micros == 0 {
		return ""
	}
	return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
}
