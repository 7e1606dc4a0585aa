package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// labels are a message's tag and properties, as a client gives them.
type labels struct {
	Tag        string            `json:"tag,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

// in adds the labels to an object.
func (l labels) in(t *testing.T, object string) string {
	t.Helper()
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		t.Fatal(err)
	}
	own, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(own, &all); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fields are those of an object, without its braces.
func fields(object string) string { return object[1 : len(object)-1] }

// oddLabels have values that break what handles text carelessly.
func oddLabels() []labels {
	return []labels{
		{"ü 東京", map[string]string{"Größe": "groß", "emoji": "👩‍👩‍👧‍👦", "東京": "日本"}},
		{"created", map[string]string{"json": `{"a": "b\\", "c": [1]}`, "lines": "a\nb\r\n\tc", "quotes": `'"` + "`", "spaces": "  a  "}},
		{"a|b", map[string]string{"html": "<b>&amp;</b>", "controls": "\x03\x1f\x7f", "private": "\ue000\ufffd", "combining": "e\u0301", "rtl": "\u202eabc"}},
		{"", map[string]string{"with space": "=", "a=b": "c&d", "%41": "%42", "-": ".", "_": "0", "null": "null", "true": "true"}},
		{"long", map[string]string{"long": strings.Repeat("langer Wert – ", 1800), "n": "1"}}, // 28.8 KB
		{"", nil},
	}
}

// TestPropertiesSurvive: what a client gives is what consumers see, whichever way it went.
func TestPropertiesSurvive(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	want := make(map[string]labels) // by message id
	for _, l := range oddLabels() {
		for i, id := range e.sendEveryWay(s, l) {
			want[id] = l
			if i == 0 && l.Tag == "" {
				want[id] = labels{"created", l.Properties} // the kind's own
			}
		}
	}
	for id, copies := range e.all(len(want)) {
		got := labels{Tag: copies[0].Properties.Get("TAGS")}
		for _, p := range copies[0].Properties {
			if _, given := want[id].Properties[p.Name]; given {
				if got.Properties == nil {
					got.Properties = make(map[string]string)
				}
				got.Properties[p.Name] = p.Value
			}
		}
		if diff := cmp.Diff(want[id], got); diff != "" {
			t.Errorf("message %s, TX_ID %q (-want +got):\n%s", id, copies[0].Properties.Get("TX_ID"), diff)
		}
	}
}

// filtered is a subscription, and which of the messages it is to get: those whose tag and properties match.
type filtered struct {
	name, expression string
	match            func(l labels) bool
	clients          string // go, java or both
}

// amount is the property as a number; -1 when it is none.
func amount(l labels) int {
	n, err := strconv.Atoi(l.Properties["amount"])
	if err != nil {
		return -1
	}
	return n
}

// filters are for both clients where these do different things. rocketmq-client-go takes the hash of a tag over its bytes,
// the broker over its UTF-16 units: it does not find tags that are not ASCII.
var filters = []filtered{
	{"all", "*", func(labels) bool { return true }, "both"},
	{"tag", "created", func(l labels) bool { return l.Tag == "created" }, "both"},
	{"two-tags", "created || amended", func(l labels) bool { return l.Tag != "Größe ü" }, "go"},
	{"odd-tag", "Größe ü", func(l labels) bool { return l.Tag == "Größe ü" }, "java"},
	{"no-such-tag", "creat", func(labels) bool { return false }, "go"},
	{"equal", "sql:region = 'Köln'", func(l labels) bool { return l.Properties["region"] == "Köln" }, "go"},
	{"number", "sql:amount > 10 AND amount <= 1000", func(l labels) bool { return amount(l) > 10 && amount(l) <= 1000 }, "both"},
	{"tags", "sql:TAGS IN ('amended', 'Größe ü') AND amount IS NOT NULL", func(l labels) bool {
		return (l.Tag == "amended" || l.Tag == "Größe ü") && l.Properties["amount"] != ""
	}, "go"},
	{"missing", "sql:region IS NULL", func(l labels) bool { return l.Properties["region"] == "" }, "go"},
	{"emoji", "sql:mood = '🚚' OR region = '東京'", func(l labels) bool { return l.Properties["mood"] == "🚚" || l.Properties["region"] == "東京" }, "both"},
}

// TestFilters: consumers' tag and SQL92 filters match what was sent, of transactions and of messages in every way.
func TestFilters(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	sent := make(map[string]labels) // by message id
	for _, tag := range []string{"created", "amended", "Größe ü"} {
		for _, p := range []map[string]string{
			{"region": "Köln", "amount": "9"}, {"region": "東京", "amount": "10"}, {"region": "Köln", "amount": "1000"}, {"amount": "11", "mood": "🚚"}, {"note": "x"},
		} {
			l := labels{tag, p}
			for _, id := range e.sendEveryWay(s, l) {
				sent[id] = l
			}
		}
	}
	e.all(len(sent))
	for name, program := range map[string]func(*testing.T) *exec.Cmd{"go": goConsumers, "java": javaConsumers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			used := slices.DeleteFunc(slices.Clone(filters), func(f filtered) bool { return f.clients != name && f.clients != "both" })
			var subscriptions []subscription
			for _, f := range used {
				subscriptions = append(subscriptions, subscription{group: e.group + "-" + name + "-" + f.name, tag: f.expression})
			}
			b := e.consume(t, program(t), subscriptions)
			for i, f := range used {
				assertFiltered(t, b, subscriptions[i], sent, f.match)
			}
		})
	}
}

// sendEveryWay sends messages with the labels, that of a transaction first, and returns their ids.
func (e *env) sendEveryWay(s *service, l labels) []string {
	e.t.Helper()
	key := "k-" + l.Tag
	ids := []string{s.mustPost("/v1/orders", l.in(e.t, order("", key)), http.StatusCreated).MessageID}
	single := fields(l.in(e.t, `{"body": 1}`))
	for _, request := range []struct {
		fields string
		status int
	}{
		{single, http.StatusCreated},
		{`"batch": [{` + single + `}, ` + l.in(e.t, `{"body_base64": "AA=="}`) + `]`, http.StatusCreated},
		{`"delay_level": 1, ` + single, http.StatusCreated},
		{`"deliver_at": "2001-01-01T00:00:00Z", ` + single, http.StatusCreated},
		{`"mode": "async", ` + single, http.StatusAccepted},
		{`"mode": "oneway", ` + single, http.StatusAccepted},
	} {
		ids = append(ids, e.mustSend(s, key, request.fields, request.status).MessageIDs...)
	}
	return ids
}

// assertFiltered waits until the consumer has got what its filter matches. One that got too much is seen as well: the
// consumer of everything has got all messages by then, and this one is given time to get what it should.
func assertFiltered(t *testing.T, b *inbox, s subscription, sent map[string]labels, match func(l labels) bool) {
	t.Helper()
	want := make(map[string]bool)
	for id, l := range sent {
		if match(l) {
			want[id] = true
		}
	}
	got := make(map[string]bool)
	await.Success(t, 3*time.Minute, func() error {
		for _, m := range b.of(s.group) {
			got[m.MessageID] = true
		}
		if len(got) < len(want) {
			return fmt.Errorf("%s: consumer %s has got %d messages, want %d", s.tag, s.group, len(got), len(want))
		}
		return nil
	})
	if !maps.Equal(want, got) {
		t.Errorf("%s: got %v, want %v", s.tag, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
