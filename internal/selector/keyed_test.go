package selector

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// stated is a selector that states whether it goes by the shard key alone.
type stated struct {
	txn.Selector
	byKey bool
}

func (s stated) ByShardKey() bool { return s.byKey }

func lanesBy(by string, within Spec) Spec {
	return Spec{Type: TypeLanes, Lanes: &Lanes{By: by, Within: within, Lanes: []Lane{
		{Name: "canary", Queues: []QueueRef{{ID: 0}}, Share: 25, Match: []string{"acme", "acme-*"}},
		{Name: "default", Queues: []QueueRef{{ID: 1}, {ID: 2}, {ID: 3}}},
	}}}
}

// everywhere has lanes that can be within those of lanesBy.
func everywhere(by string) Spec {
	all := []QueueRef{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}
	return Spec{Type: TypeLanes, Lanes: &Lanes{By: by, Lanes: []Lane{{Name: "other", Queues: all}, {Name: "default", Queues: all}}}}
}

// TestSplitsKeys: a selector that ordered kinds accept sends a key to one queue whatever else the message has, and a
// selector that they refuse does not.
func TestSplitsKeys(t *testing.T) {
	byArg := selectFunc(func(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
		return txn.Route{Queue: queues[len(in.Arg)%len(queues)]}, nil
	})
	first := selectFunc(func(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
		return txn.Route{Queue: queues[0]}, nil
	})
	r, err := NewRegistry(map[string]Factory{
		"by_key":  func(Decode) (txn.Selector, error) { return stated{first, true}, nil },
		"by_more": func(Decode) (txn.Selector, error) { return stated{byArg, false}, nil },
		"mum":     func(Decode) (txn.Selector, error) { return byArg, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spec Spec
		want string
	}{
		"default":          {Spec{}, ""},
		"hash":             {Spec{Type: TypeHash}, ""},
		"java_hash":        {Spec{Type: TypeJavaHash}, ""},
		"consistent":       {Spec{Type: TypeConsistent}, ""},
		"lanes by key":     {lanesBy("shard_key", Spec{Type: TypeHash}), ""},
		"lanes in lanes":   {lanesBy("shard_key", everywhere("shard_key")), ""},
		"round_robin":      {Spec{Type: TypeRoundRobin}, "round_robin does not"},
		"queue":            {Spec{Type: TypeQueue}, "queue goes by selector_arg"},
		"lanes by arg":     {lanesBy("selector_arg", Spec{}), "lanes by selector_arg go by more than the key; lanes by shard_key do not"},
		"lanes by header":  {lanesBy("header:X-Lane", Spec{}), "lanes by header:X-Lane go by more than the key; lanes by shard_key do not"},
		"lanes by payload": {lanesBy("payload:/tenant", Spec{}), "lanes by payload:/tenant go by more than the key; lanes by shard_key do not"},
		"queue in lanes":   {lanesBy("shard_key", Spec{Type: TypeQueue}), "within its lanes, queue goes by selector_arg"},
		"header in lanes":  {lanesBy("shard_key", everywhere("header:X-Lane")), "within its lanes, lanes by header:X-Lane go by more than the key; lanes by shard_key do not"},
		"own by key":       {Spec{Type: "by_key"}, ""},
		"own by more":      {Spec{Type: "by_more"}, "by_more does not say that it goes by the shard key alone"},
		"own that is mum":  {Spec{Type: "mum"}, "mum does not say that it goes by the shard key alone"},
		"own in lanes":     {lanesBy("shard_key", Spec{Type: "mum"}), "within its lanes, mum does not say that it goes by the shard key alone"},
	} {
		s, err := r.New(tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := SplitsKeys(s); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		used := make(map[txn.Queue]bool)
		for i := range 64 {
			in := txn.SelectorInput{
				ShardKey: "acme-1", Arg: json.RawMessage(fmt.Sprint(i % 4)), Payload: json.RawMessage(fmt.Sprintf(`{"tenant": "acme%d"}`, i)),
				Header: func(string) string { return []string{"acme", "other"}[i%2] },
			}
			if i%2 == 0 {
				in.Arg = json.RawMessage(`"acme"`)
			}
			if route, err := s.Select(onBroker("broker-a", 4), in); err == nil {
				used[route.Queue] = true
			}
		}
		if tc.want == "" && len(used) != 1 {
			t.Errorf("%s: one key goes to %d queues", name, len(used))
		}
	}
}

// TestLanesByShardKey: exact values, prefixes, shares and the default lane count for the key as they do for other values.
func TestLanesByShardKey(t *testing.T) {
	s, err := New(lanesBy("shard_key", Spec{Type: TypeHash}))
	if err != nil {
		t.Fatal(err)
	}
	lane := func(key string) string {
		route, err := s.Select(onBroker("broker-a", 4), txn.SelectorInput{ShardKey: key})
		if err != nil {
			t.Fatal(err)
		}
		return route.Lane
	}
	for key, want := range map[string]string{"acme": "canary", "acme-7": "canary", "default": "default"} {
		if got := lane(key); got != want {
			t.Errorf("%s: got lane %s, want %s", key, got, want)
		}
	}
	shared := 0
	for i := range 1000 {
		if lane(fmt.Sprint("key-", i)) == "canary" {
			shared++
		}
	}
	if shared < 200 || shared > 300 {
		t.Errorf("%d of 1000 keys are in the lane with a share of 25 %%", shared)
	}
	closed, err := New(Spec{Type: TypeLanes, Lanes: &Lanes{By: "shard_key", Lanes: []Lane{{Name: "a", Queues: []QueueRef{{ID: 0}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = closed.Select(onBroker("broker-a", 4), txn.SelectorInput{ShardKey: "b"})
	if got, want := fmt.Sprint(err), "invalid_request: /shard_key: names no lane, and there is no default lane"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestText: two specs have the same text if and only if they differ at most in on_change.
func TestText(t *testing.T) {
	options := func(weight int) Decode {
		return func(into any) error { return json.Unmarshal(fmt.Appendf(nil, `{"weight": %d}`, weight), into) }
	}
	share := lanesBy("shard_key", Spec{})
	share.Lanes.Lanes[0].Share = 26
	seen := make(map[string]int)
	for i, same := range [][]Spec{
		{{}, {Type: TypeHash}, {Type: TypeHash, OnChange: txn.OnChangeRefuse}},
		{{Type: TypeConsistent}},
		{lanesBy("shard_key", Spec{}), lanesBy("shard_key", Spec{Type: TypeHash})},
		{lanesBy("shard_key", Spec{Type: TypeConsistent})},
		{lanesBy("header:X", Spec{})},
		{share},
		{{Type: "own"}},
		{{Type: "own", Options: options(1)}, {Type: "own", Options: options(1)}},
		{{Type: "own", Options: options(2)}},
	} {
		for _, spec := range same {
			text, err := spec.Text()
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[text]; ok && other != i {
				t.Errorf("%d and %d have the text %s", other, i, text)
			}
			seen[text] = i
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d texts, want 9: %v", len(seen), seen)
	}
}

// TestByKey: a selector of an ordered kind is given the shard key and nothing else.
func TestByKey(t *testing.T) {
	s := ByKey(named{})
	_, err := s.Select(onBroker("broker-a", 4), txn.SelectorInput{ShardKey: "k", Arg: json.RawMessage("1")})
	if got, want := fmt.Sprint(err), "invalid_request: /selector_arg: is required: the queue's id, or an object with broker and id"; got != want || s.Name() != TypeQueue {
		t.Errorf("got %s, want %s", got, want)
	}
}
