package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const answered = `{"id": "v-1", "kind": "k", "state": "committed", "delivery": "delivered", "shard_key": "s", "topic": "t", "tag": null,
	"queue": {"broker": "b", "id": 3}, "message_id": "7F0000010A2C18B4AAC27E5D1F3C0001", "route": {"selector": "hash", "lane": "l", "reason": "r"},
	"result": {"x": 1}, "error": null, "created_at": "2024-05-17T09:30:00.104211Z", "decided_at": "2024-05-17T09:30:00.106530Z", "replayed": true}`

func TestReadAnswer(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(answered, old, new, 1) }
	problem := func(code string) string { return fmt.Sprintf(`{"code": %q, "detail": "d"}`, code) }
	for name, tc := range map[string]struct {
		purpose Purpose
		status  int
		text    string
		want    Class
	}{
		"committed":           {Post, 201, answered, Committed},
		"asked":               {Get, 200, answered, Committed},
		"unknown":             {Post, 202, with("committed", "unknown"), Unknown},
		"unknown with 201":    {Post, 201, with("committed", "unknown"), Malformed},
		"committed with 202":  {Post, 202, answered, Malformed},
		"of another id":       {Post, 201, with("v-1", "v-2"), Malformed},
		"without a queue":     {Post, 201, with(`{"broker": "b", "id": 3}`, "null"), Malformed},
		"no JSON":             {Post, 201, answered[1:], Malformed},
		"no state":            {Post, 201, with("committed", "fine"), Malformed},
		"abandoned":           {Get, 200, with(`"committed"`, `"rolled_back", "error": {"code": "abandoned"}`), Malformed}, // error is there twice
		"rejected":            {Post, 422, problem("rejected"), Rejected},
		"rejected with 200":   {Get, 200, with("committed", "rolled_back"), Rejected},
		"mismatch":            {Post, 422, problem("idempotency_mismatch"), Mismatch},
		"conflict":            {Post, 409, problem("conflict"), Conflict},
		"invalid":             {Post, 400, problem("invalid_request"), Refused},
		"overloaded":          {Post, 503, problem("overloaded"), Overloaded},
		"no broker":           {Post, 503, problem("broker_unavailable"), BrokerUnavailable},
		"no database":         {Post, 503, problem("database_unavailable"), DatabaseUnavailable},
		"code without status": {Post, 500, problem("rejected"), Malformed},
		"internal":            {Post, 500, problem("internal"), Internal},
		"not found":           {Get, 404, problem("not_found"), NotFound},
		"no such path":        {Post, 404, problem("not_found"), OtherStatus},
		"of a proxy":          {Post, 502, "<html>", OtherStatus},
		"of a proxy, JSON":    {Post, 503, "{}", OtherStatus},
	} {
		if got := readAnswer("v-1", tc.purpose, tc.status, []byte(tc.text)); got.Class != tc.want {
			t.Errorf("%s: got %s (%s), want %s", name, got.Class, got.Detail, tc.want)
		}
	}
	a := readAnswer("v-1", Post, 201, []byte(answered))
	if !a.Replayed || !a.Delivered || a.Queue != "b:3" || a.MessageID[0] != 0x7f {
		t.Errorf("got %+v", a)
	}
}

// TestContent: an answer has the same hash as a row with the same content, and any difference changes the hash.
func TestContent(t *testing.T) {
	want := readAnswer("v-1", Post, 201, []byte(answered)).Content
	created := time.Date(2024, 5, 17, 9, 30, 0, 104211000, time.UTC)
	decided := time.Date(2024, 5, 17, 9, 30, 0, 106530000, time.UTC)
	row := Row{
		Kind: "k", ShardKey: "s", Topic: "t", Selector: "hash", Lane: "l", Reason: "r", Result: []byte(`{ "x":1 }`), CreatedAt: created, DecidedAt: &decided,
	}
	if got := row.content(); got != want {
		t.Errorf("the row hashes to %x, the answer to %x", got, want)
	}
	for _, change := range []string{`"s"`, `"t"`, `"hash"`, `"l"`, `"r"`, `{"x": 1}`, "104211", "106530", `"k"`} {
		text := strings.Replace(answered, change, strings.NewReplacer(`"s"`, `"s2"`, `"t"`, `"t2"`, `"hash"`, `"h"`, `"l"`, `"l2"`, `"r"`, `"q"`, `{"x": 1}`, `{"x": 2}`,
			"104211", "104212", "106530", "106531", `"k"`, `"l"`).Replace(change), 1)
		if got := readAnswer("v-1", Post, 201, []byte(text)); got.Content == want || got.Class != Committed {
			t.Errorf("a changed %s is not seen", change)
		}
	}
}

func TestMetric(t *testing.T) {
	text := []byte("# HELP a_total x\na_total 3\na_total{b=\"c\"} 4.5\na_total_more 100\nb 7\n")
	if got := metric(text, "a_total"); got != 7.5 {
		t.Errorf("got %v, want 7.5", got)
	}
	if got := metric(text, "c"); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	for i, want := range []time.Duration{500 * time.Millisecond, 950 * time.Millisecond, 990 * time.Millisecond, time.Second} {
		if got := h.quantiles(0.5, 0.95, 0.99, 1)[i]; got < want || got > want*17/16+time.Millisecond {
			t.Errorf("got %s, want %s or up to 1/16 more", got, want)
		}
	}
	var empty histogram
	if got := empty.quantiles(0.5, 1); got[0] != 0 || got[1] != 0 {
		t.Errorf("got %v of nothing", got)
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := group(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestLoadIsChecked(t *testing.T) {
	good := func() Load {
		l := Load{Count: 1}
		l.setDefaults(time.Now())
		return l
	}
	if l := good(); l.validate() != nil {
		t.Errorf("the defaults are refused: %v", l.validate())
	}
	for name, change := range map[string]func(*Load){
		"run":          func(l *Load) { l.Run = "A b" },
		"nothing":      func(l *Load) { l.Count = 0 },
		"count":        func(l *Load) { l.Count = -1 },
		"keys":         func(l *Load) { l.Keys = -1 },
		"distribution": func(l *Load) { l.Distribution = "odd" },
		"rate":         func(l *Load) { l.Rate = -1 },
		"share":        func(l *Load) { l.Shares.Ask = 1.5 },
		"shares":       func(l *Load) { l.Shares = Shares{Ask: 0.6, Repeat: 0.6} },
	} {
		l := good()
		change(&l)
		if err := l.validate(); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "s")) && name != "nothing" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestTargets: replicas take turns, and one that does not answer is passed over.
func TestTargets(t *testing.T) {
	targets, err := newTargets([]string{"http://a:1/", "http://b:2", "https://c"}, 9)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for range 30 {
		seen[targets.pick().url]++
	}
	if seen["http://a:1"] != 10 || seen["http://b:2"] != 10 || seen["https://c"] != 10 {
		t.Errorf("got %v, want 10 each", seen)
	}
	targets.now()[1].busy.Store(3) // its share of 9
	for range 30 {
		if got := targets.pick().url; got == "http://b:2" {
			t.Error("the busy one is picked")
		}
	}
	for _, bad := range [][]string{nil, {"a:1"}, {"ftp://a"}, {"http://"}} {
		if _, err := newTargets(bad, 1); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
