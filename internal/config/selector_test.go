package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// topic returns a file with a kind, and the topic t with the selector, which begins in line 7, column 5.
func topic(spec string) string {
	return kind("tag: x") + "topics:\n  t:\n    selector:\n      " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n      ") + "\n"
}

func TestParseLanes(t *testing.T) {
	file, err := parse(topic(`
type: lanes
by: payload:/tenant
on_change: refuse
lanes:
  canary: {queues: [0], share: 2.5}
  big: {queues: [1, "broker-a:2"], match: [acme, "acme-*"]}
  off: {queues: [3], match: [], share: 0}
  default: {queues: [3, 4]}
within: {type: lanes, by: selector_arg, lanes: {default: {queues: [0, 1, 2, 3, 4]}}, within: consistent}`))
	if err != nil {
		t.Fatal(err)
	}
	want := selector.Spec{Type: "lanes", OnChange: txn.OnChangeRefuse, Lanes: &selector.Lanes{
		By: "payload:/tenant",
		Lanes: []selector.Lane{
			{Name: "canary", Queues: []selector.QueueRef{{ID: 0}}, Share: 2.5},
			{Name: "big", Queues: []selector.QueueRef{{ID: 1}, {Broker: "broker-a", ID: 2}}, Match: []string{"acme", "acme-*"}},
			{Name: "off", Queues: []selector.QueueRef{{ID: 3}}, Match: []string{}},
			{Name: "default", Queues: []selector.QueueRef{{ID: 3}, {ID: 4}}},
		},
		Within: selector.Spec{Type: "lanes", Lanes: &selector.Lanes{
			By:     "selector_arg",
			Lanes:  []selector.Lane{{Name: "default", Queues: []selector.QueueRef{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}}},
			Within: selector.Spec{Type: "consistent"},
		}},
	}}
	if diff := cmp.Diff(want, file.Topics["t"].Selector); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, file.Kinds["a.b"].Selector); diff != "" {
		t.Errorf("the kind of the topic: (-want +got)\n%s", diff)
	}
	wantWarnings := []config.Problem{
		{Line: 15, Column: 9, Path: "topics.t.selector.lanes.off", Message: "nothing goes to this lane: it has neither match nor share"},
		{Line: 16, Column: 28, Path: "topics.t.selector.lanes.default.queues[0]", Message: "the lane off has this queue, too"},
	}
	if diff := cmp.Diff(wantWarnings, file.Warnings); diff != "" {
		t.Errorf("warnings: (-want +got)\n%s", diff)
	}
}

func TestParseRefusesSelectors(t *testing.T) {
	const (
		head  = "type: lanes\nby: selector_arg\n"
		queue = "must be a queue's id, or broker and id like broker-a:0"
		name  = "the name of a lane has at most 64 letters, digits and . _ - and begins with a letter or a digit"
		by    = "must be selector_arg, shard_key, header:NAME or payload:/json/pointer"
		ptr   = "payload: is followed by a JSON Pointer, like payload:/tenant: it begins with / and has ~ only as ~0 and ~1"
		head2 = "header: is followed by the name of a header, like header:X-Lane"
		known = "there are consistent, hash, java_hash, lanes, queue, round_robin"
	)
	lanes := func(text string) string { return head + "lanes:\n  " + strings.ReplaceAll(text, "\n", "\n  ") }
	for _, tt := range []struct{ name, spec, want string }{
		{"nothing", "type: lanes", "9:11: : by is required\n9:11: : lanes is required"},
		{"unknown field", head + "lanes: {a: {queues: [0]}}\nfor: x", "12:7: .for: unknown field; known are by, lanes, on_change, type, within"},
		{"unknown field of a lane", lanes("a: {queues: [0], percent: 5}"), "12:26: .lanes.a.percent: unknown field; known are match, queues, share"},
		{"by is a number", "type: lanes\nby: 5\nlanes: {a: {queues: [0]}}", "10:11: .by: must be text; in quotes if it looks like something else"},
		{"by is unknown", "type: lanes\nby: tenant\nlanes: {a: {queues: [0]}}", "10:11: .by: " + by},
		{"by has an argument", "type: lanes\nby: selector_arg:x\nlanes: {a: {queues: [0]}}", "10:11: .by: " + by},
		{"header without name", "type: lanes\nby: 'header:'\nlanes: {a: {queues: [0]}}", "10:11: .by: " + head2},
		{"header with a space", "type: lanes\nby: 'header:X Lane'\nlanes: {a: {queues: [0]}}", "10:11: .by: " + head2},
		{"pointer without slash", "type: lanes\nby: payload:tenant\nlanes: {a: {queues: [0]}}", "10:11: .by: " + ptr},
		{"pointer to the root", "type: lanes\nby: 'payload:'\nlanes: {a: {queues: [0]}}", "10:11: .by: " + ptr},
		{"pointer with a wrong escape", "type: lanes\nby: payload:/a~2\nlanes: {a: {queues: [0]}}", "10:11: .by: " + ptr},
		{"lanes is a list", head + "lanes: [a]", "11:14: .lanes: must be a mapping"},
		{"no lane", head + "lanes: {}", "11:7: .lanes: at least one lane is needed"},
		{"lane is a number", lanes("a: 5"), "12:12: .lanes.a: must be a mapping"},
		{"lane without queues", lanes("a:\n  share: 5"), "12:9: .lanes.a: queues is required"},
		{"lane of no queue", lanes("a: {queues: []}"), "12:21: .lanes.a.queues: at least one queue is needed"},
		{"queues is a number", lanes("a: {queues: 0}"), "12:21: .lanes.a.queues: must be a list"},
		{"name of a lane", lanes("a/b: {queues: [0]}"), "12:9: .lanes.a/b: " + name},
		{"long name of a lane", lanes(long(65) + ": {queues: [0]}"), "12:9: .lanes." + long(65) + ": " + name},
		{"queue is text", lanes("a: {queues: [0, one]}"), "12:25: .lanes.a.queues[1]: " + queue},
		{"queue without broker", lanes("a: {queues: [':1']}"), "12:22: .lanes.a.queues[0]: " + queue},
		{"queue in quotes", lanes("a: {queues: ['1']}"), "12:22: .lanes.a.queues[0]: " + queue},
		{"queue is negative", lanes("a: {queues: [-1]}"), "12:22: .lanes.a.queues[0]: the id of a queue is not negative"},
		{"queue of a broker is negative", lanes("a: {queues: ['b:-1']}"), "12:22: .lanes.a.queues[0]: " + queue},
		{"queue is large", lanes("a: {queues: [2147483648]}"), "12:22: .lanes.a.queues[0]: is too large for the id of a queue"},
		{"queue is a fraction", lanes("a: {queues: [0.5]}"), "12:22: .lanes.a.queues[0]: " + queue},
		{"queue twice", lanes("a: {queues: [1, 1]}"), "12:25: .lanes.a.queues[1]: 1 is there already, by 1"},
		{"queue twice, once by its broker", lanes("a: {queues: [1, 'b:1']}"), "12:25: .lanes.a.queues[1]: b:1 is there already, by 1"},
		{"exact match twice", lanes("a: {queues: [0], match: [x]}\nb: {queues: [1], match: [y, x]}"), "13:37: .lanes.b.match[1]: x belongs to the lane a already"},
		{"prefix twice", lanes("a: {queues: [0], match: ['x*']}\nb: {queues: [1], match: ['x*']}"), "13:34: .lanes.b.match[0]: x* belongs to the lane a already"},
		{"match of another lane's name", lanes("a: {queues: [0]}\nb: {queues: [1], match: [a]}"), "13:34: .lanes.b.match[0]: a belongs to the lane a already"},
		{"match of the default lane's name", lanes("default: {queues: [0]}\nb: {queues: [1], match: [default]}"), "13:34: .lanes.b.match[0]: default belongs to the lane default already"},
		{"name of another lane's match", lanes("b: {queues: [1], match: [a]}\na: {queues: [0]}"), "13:9: .lanes.a: a belongs to the lane b already"},
		{"match twice in a lane", lanes("a: {queues: [0], match: [x, x]}"), "12:37: .lanes.a.match[1]: x is there already"},
		{"match is text", lanes("a: {queues: [0], match: x}"), "12:33: .lanes.a.match: must be a list"},
		{"match is empty text", lanes("a: {queues: [0], match: ['']}"), "12:34: .lanes.a.match[0]: must not be empty"},
		{"match is a number", lanes("a: {queues: [0], match: [5]}"), "12:34: .lanes.a.match[0]: must be text; in quotes if it looks like something else"},
		{"star inside", lanes("a: {queues: [0], match: ['a*b']}"), "12:34: .lanes.a.match[0]: a * may only stand at the end, where it makes a prefix"},
		{"two stars", lanes("a: {queues: [0], match: ['a**']}"), "12:34: .lanes.a.match[0]: a * may only stand at the end, where it makes a prefix"},
		{"share is text", lanes("a: {queues: [0], share: 5%}"), "12:33: .lanes.a.share: must be a number"},
		{"share is negative", lanes("a: {queues: [0], share: -1}"), "12:33: .lanes.a.share: must be from 0 to 100, in per cent"},
		{"share is large", lanes("a: {queues: [0], share: 100.5}"), "12:33: .lanes.a.share: must be from 0 to 100, in per cent"},
		{"share is no number", lanes("a: {queues: [0], share: .nan}"), "12:33: .lanes.a.share: must be a number"},
		{"share is too fine", lanes("a: {queues: [0], share: 0.00001}"), "12:33: .lanes.a.share: must have at most four decimals"},
		{"shares above 100", lanes("a: {queues: [0], share: 60}\nb: {queues: [1], share: 40.0001}\nc: {queues: [2]}"), "13:33: .lanes.b.share: the shares up to here are 100.0001 %, more than 100"},
		{"default with a share", lanes("default: {queues: [0], share: 5}"), "12:39: .lanes.default.share: the default lane has the keys that no other lane has: it has no share"},
		{"default with a match", lanes("default: {queues: [0], match: [x]}"), "12:39: .lanes.default.match: the default lane takes what no other lane takes: it has no match"},
		{"unknown within", lanes("a: {queues: [0]}") + "\nwithin: hsah", `13:15: .within: selector type "hsah" is unknown; ` + known},
		{"unknown type within", lanes("a: {queues: [0]}") + "\nwithin: {type: hsah}", `13:22: .within.type: selector type "hsah" is unknown; ` + known},
		{"lanes within by name", lanes("a: {queues: [0]}") + "\nwithin: lanes", "13:15: .within: by and lanes are required"},
		{"within is a list", lanes("a: {queues: [0]}") + "\nwithin: [hash]", "13:15: .within: must be text; in quotes if it looks like something else"},
		{"within without type", lanes("a: {queues: [0]}") + "\nwithin: {}", "13:15: .within: type is required"},
		{"on_change within", lanes("a: {queues: [0]}") + "\nwithin: {type: hash, on_change: remap}", "13:28: .within.on_change: unknown field; known are type"},
		{"mistake in lanes within", lanes("a: {queues: [0]}") + "\nwithin:\n  type: lanes\n  by: x\n  lanes: {b: {queues: [0]}}", "15:13: .within.by: " + by},
		{"lane within has no queue in common", lanes("a: {queues: [0]}\nb: {queues: ['x:1']}") + "\nwithin:\n  type: lanes\n  by: selector_arg\n  lanes: {c: {queues: [0, 'y:1']}}", "17:17: .within.lanes.c: has no queue of the lane b, which is around it"},
		{"on_change", "type: hash\non_change: stay", "10:18: .on_change: must be remap or refuse"},
		{"on_change is a bool", "type: hash\non_change: true", "10:18: .on_change: must be text; in quotes if it looks like something else"},
		{"one mistake told once, and all mistakes", lanes("a: {queues: [x], share: 101}\nab: {match: [y]}\nb: {queues: [0], match: [y]}"),
			"12:22: .lanes.a.queues[0]: " + queue + "\n12:33: .lanes.a.share: must be from 0 to 100, in per cent\n" +
				"13:9: .lanes.ab: queues is required\n14:34: .lanes.b.match[0]: y belongs to the lane ab already"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(topic(tt.spec))
			assertMistakes(t, err, tt.spec, tt.want)
		})
	}
}

// byWeight is an own type with options; strange has a factory that looks at none.
var ownTypes = registry(map[string]selector.Factory{
	"by_weight": func(options selector.Decode) (txn.Selector, error) {
		var o struct {
			Weights map[string]int `yaml:"weights"`
			Nested  struct {
				Depth int `yaml:"depth"`
			} `yaml:"nested"`
		}
		if err := options(&o); err != nil {
			return nil, err
		}
		var wrong []error
		for name, weight := range o.Weights {
			if weight < 0 {
				wrong = append(wrong, selector.OptionErrorf("/weights/"+name, "must not be negative"))
			}
		}
		if len(o.Weights) == 0 {
			wrong = append(wrong, errors.New("weights are required"))
		}
		return ownSelector{}, errors.Join(wrong...)
	},
	"by_key":  func(selector.Decode) (txn.Selector, error) { return keyed{}, nil },
	"strange": func(selector.Decode) (txn.Selector, error) { return ownSelector{}, nil },
	"panics":  func(selector.Decode) (txn.Selector, error) { panic("no") },
})

// registry has the shipped types and others.
func registry(own map[string]selector.Factory) selector.Registry {
	r, err := selector.NewRegistry(own)
	if err != nil {
		panic(err)
	}
	return r
}

type ownSelector struct{}

func (ownSelector) Name() string { return "own" }

func (ownSelector) Select(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
	return txn.Route{Queue: queues[0]}, nil
}

// An own type is used like a shipped one, also within lanes, and its mistakes have a place.
func TestParseOwnSelectors(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"with options", "type: by_weight\non_change: refuse\nweights: {a: 1, b: 2}\nnested: {depth: 3}", ""},
		{"without options", "type: strange", ""},
		{"within lanes", "type: lanes\nby: selector_arg\nlanes: {default: {queues: [0]}}\nwithin: {type: by_weight, weights: {a: 1}}", ""},
		{"within lanes, by name", "type: lanes\nby: selector_arg\nlanes: {default: {queues: [0]}}\nwithin: strange", ""},
		{"unknown", "type: by_wight", `9:13: .type: selector type "by_wight" is unknown; there are by_key, by_weight, consistent, hash, java_hash, lanes, panics, queue, round_robin, strange`},
		{"unknown option", "type: by_weight\nwait: {a: 1}", `10:7: : selector by_weight: unknown field "wait"`},
		{"unknown option in depth", "type: by_weight\nweights: {a: 1}\nnested: {deep: 1}", `11:16: : selector by_weight: unknown field "deep"`},
		{"option of another type", "type: by_weight\nweights:\n  a: many", `11:12: : selector by_weight: must be int, not string`},
		{"anchors", "type: by_weight\nweights: &w {a: 1}", `10:16: : anchors, aliases and tags of YAML are not used here`},
		{"wrong values", "type: by_weight\nweights:\n  a: 1\n  b: -1\n  c: -2", "12:12: .weights.b: selector by_weight: must not be negative\n13:12: .weights.c: selector by_weight: must not be negative"},
		{"missing", "type: by_weight", `9:11: : selector by_weight: weights are required`},
		{"options that nobody reads", "type: strange\na: 1", `9:11: : selector strange takes no options`},
		{"panic", "type: panics", `9:11: : selector panics: its factory panicked: no`},
		{"wrong within lanes", "type: lanes\nby: selector_arg\nlanes: {default: {queues: [0]}}\nwithin: {type: by_weight, weights: {a: -1}}", "12:46: .within.weights.a: selector by_weight: must not be negative"},
		{"unknown option within lanes", "type: lanes\nby: selector_arg\nlanes: {default: {queues: [0]}}\nwithin: {type: by_weight, weight: 1}", `12:33: .within: selector by_weight: unknown field "weight"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, err := config.Parse("kinds.yaml", []byte(topic(tt.spec)), schemas, ownTypes)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				spec := file.Topics["t"].Selector
				if _, err := ownTypes.New(spec); err != nil {
					t.Errorf("making it again: %v", err)
				}
				return
			}
			assertMistakes(t, err, tt.spec, tt.want)
		})
	}
}

// An ordered kind takes a user's selector that states that it goes by the shard key alone, and no other.
func TestOrderWithAnOwnSelector(t *testing.T) {
	for selectorType, want := range map[string]string{
		"by_key":  "",
		"strange": "kinds.yaml:3:14: kinds.a.ordered: needs a selector that keeps a shard key in one queue; strange does not say that it goes by the shard key alone",
	} {
		text := "kinds:\n  a:\n    ordered: true\n    topic: t\n    local: {handler: h}\n    selector: {type: " + selectorType + "}\n"
		got := ""
		if _, err := config.Parse("kinds.yaml", []byte(text), schemas, ownTypes); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", selectorType, got, want)
		}
	}
}

// assertMistakes compares what is wrong with the selector of topic(spec), one mistake per line.
func assertMistakes(t *testing.T, err error, spec, want string) {
	t.Helper()
	var got []string
	if e, ok := errors.AsType[*config.Error](err); ok {
		for _, line := range strings.Split(e.Error(), "\n") {
			line = strings.TrimPrefix(line, "kinds.yaml:")
			got = append(got, strings.Replace(line, " topics.t.selector", " ", 1))
		}
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
		t.Errorf("%v: (-want +got)\n%s\n%s", err, diff, topic(spec))
	}
}

// No selector makes the reader, or the library that decodes own options, panic; and every mistake has a place.
func FuzzParseSelector(f *testing.F) {
	f.Add("type: lanes\nby: payload:/a\nlanes: {a: {queues: [0, 'b:1'], share: 5.5, match: ['x*']}}\nwithin: {type: by_weight, weights: {a: 1}}")
	f.Add("type: by_weight\nweights: {a: 1, ? [b] : 2}\nnested: {depth: 0x1F}")
	f.Add("type: by_weight\nweights:\n  <<: {a: 1}\n  b: *x\nnested: !!map {depth: .inf}")
	f.Fuzz(func(t *testing.T, spec string) {
		_, err := config.Parse("kinds.yaml", []byte(topic(spec)), schemas, ownTypes)
		assertPlaces(t, err)
	})
}
