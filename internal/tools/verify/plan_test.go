package verify

import (
	"encoding/json"
	"strings"
	"testing"
)

func testPlan(t *testing.T, change func(*header)) *plan {
	t.Helper()
	h := sceneHeader()
	h.Keys = 100
	if change != nil {
		change(h)
	}
	p, err := newPlan(h)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlanIsReproducible: the same seed gives the same requests, and another seed gives others.
func TestPlanIsReproducible(t *testing.T) {
	change := func(h *header) { h.Shares = DefaultShares() }
	a, b := testPlan(t, change), testPlan(t, change)
	other := testPlan(t, func(h *header) { change(h); h.Seed++ })
	same := 0
	for n := range uint32(1000) {
		want := string(a.body(a.transaction(n), false, true, true))
		if got := string(b.body(b.transaction(n), false, true, true)); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if string(other.body(other.transaction(n), false, true, true)) == want {
			same++
		}
		if !json.Valid([]byte(want)) {
			t.Fatalf("%s is not JSON", want)
		}
		if id := a.id(n); !strings.HasPrefix(id, "v-test-") {
			t.Errorf("id %q", id)
		} else if back, ok := a.number(id); !ok || back != n {
			t.Errorf("number of %s: got %d, %t", id, back, ok)
		}
	}
	if same > 50 {
		t.Errorf("%d of 1000 requests are the same with another seed", same)
	}
}

func TestNumberOfStrangers(t *testing.T) {
	p := testPlan(t, nil)
	for _, id := range []string{"", "v-test-", "v-test-1", "v-test-00000000x", "v-other-000000001", "v-test-0000000001", "w-test-000000001", "v-test--00000001"} {
		if n, ok := p.number(id); ok {
			t.Errorf("%q is taken for number %d", id, n)
		}
	}
}

func TestShares(t *testing.T) {
	const count = 20_000
	p := testPlan(t, func(h *header) {
		h.Shares = Shares{Duplicate: 0.1, Mismatch: 0.05, HangUp: 0.2, Rejected: 0.05, Repeat: 0.1, Ask: 0.1}
		h.Kinds[0].Rejected, h.Kinds[0].Weight = `{}`, 3
		h.Kinds = append(h.Kinds, Kind{Name: "k.two", Topic: "topic", Weight: 1, Payload: `{}`})
	})
	var plays [playPlain + 1]int
	kinds := make([]int, 2)
	for n := range uint32(count) {
		tx := p.transaction(n)
		plays[tx.play]++
		kinds[tx.kind]++
	}
	// Kind k.two has no payload that is rejected, so a quarter of these is sent plainly.
	for i, want := range []float64{0.1, 0.05, 0.2, 0.0375, 0.1, 0.1, 0.4125} {
		if got := float64(plays[i]) / count; got < want*0.85 || got > want*1.15 {
			t.Errorf("play %d: got a share of %.3f, want about %.3f", i, got, want)
		}
	}
	if got := float64(kinds[0]) / count; got < 0.73 || got > 0.77 {
		t.Errorf("kind of weight 3 of 4: got a share of %.3f", got)
	}
}

func TestDistributions(t *testing.T) {
	const count, keys = 50_000, 100
	for distribution, want := range map[string]float64{Uniform: 0.01, Hot: hotShare, Zipf: 1 / 5.187} {
		p := testPlan(t, func(h *header) { h.Distribution, h.Keys = distribution, keys })
		var seen [keys]int
		for n := range uint32(count) {
			seen[p.transaction(n).key]++
		}
		if got := float64(seen[0]) / count; got < want*0.8 || got > want*1.2 {
			t.Errorf("%s: the first key has a share of %.4f, want about %.4f", distribution, got, want)
		}
		for key, n := range seen {
			if n == 0 {
				t.Errorf("%s: key %d never comes", distribution, key)
			}
		}
	}
}

func TestTemplates(t *testing.T) {
	values := map[string]string{placeID: "i", placeRun: "r", placeN: "7", placeKey: "k", placeAnchor: "a", placeAnchorKey: "ak"}
	for text, want := range map[string]string{
		`{"a": "{{id}}-{{ n }}", "b": {{n}}}`: `{"a": "i-7", "b": 7}`,
		`"{{pad:3}}"`:                         `"xxx"`,
		`["{{shard_key}}{{run}}"]`:            `["kr"]`,
		" {}\n":                               `{}`,
		`"{{pad:0}}{{anchor}}{{anchor_key}}"`: `"aak"`,
	} {
		parsed, err := parseTemplate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(parsed.appendTo(nil, func(name string) string { return values[name] })); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{``, `{`, `{"a": {{name}}}`, `"{{pad:99999999}}"`, `{"a": {{id}}`} {
		if _, err := parseTemplate(text); err == nil {
			t.Errorf("%q is taken for a template", text)
		}
	}
}

func TestChooseKinds(t *testing.T) {
	served := []servedKind{{Name: "order.create", Topic: "orders"}, {Name: "other", Topic: "o"}, {Name: "payment.capture", Topic: "payments"}}
	for name, tc := range map[string]struct {
		served  []servedKind
		wanted  []KindLoad
		all     bool
		want    string
		leftOut string
		err     string
	}{
		"all":                     {served: served, want: "order.create payment.capture", leftOut: "other"},
		"one":                     {served: served, wanted: []KindLoad{{Name: "order.create"}}, want: "order.create"},
		"one more":                {served: served, wanted: []KindLoad{{Name: "other", Payload: `{}`}}, all: true, want: "order.create other payment.capture"},
		"payments without orders": {served: served, wanted: []KindLoad{{Name: "payment.capture"}}, err: "refers to an order"},
		"no orders served":        {served: served[1:], wanted: []KindLoad{{Name: "other", Payload: `{}`}}, all: true, want: "other", leftOut: "payment.capture"},
		"no payload":              {served: served, wanted: []KindLoad{{Name: "other"}}, err: "needs a template"},
		"none served":             {served: served[1:2], err: "need templates"},
		"unknown":                 {served: served, wanted: []KindLoad{{Name: "x"}}, err: `no kind "x"; it has order.create, other, payment.capture`},
		"bad template":            {served: served, wanted: []KindLoad{{Name: "other", Payload: `{`}}, err: "kind other, template of its payload"},
	} {
		t.Run(name, func(t *testing.T) {
			kinds, leftOut, err := chooseKinds(tc.served, tc.wanted, tc.all)
			var names []string
			for _, k := range kinds {
				names = append(names, k.Name)
			}
			if got := strings.Join(names, " "); got != tc.want || strings.Join(leftOut, " ") != tc.leftOut {
				t.Errorf("got %q, left out %q; want %q, %q", got, leftOut, tc.want, tc.leftOut)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got error %v, want %q", err, tc.err)
			}
		})
	}
}
