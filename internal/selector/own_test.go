package selector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// selectFunc is a selector in a test.
type selectFunc func([]txn.Queue, txn.SelectorInput) (txn.Route, error)

func (selectFunc) Name() string { return "misnamed" }

func (f selectFunc) Select(queues []txn.Queue, in txn.SelectorInput) (txn.Route, error) {
	return f(queues, in)
}

func registryOf(f selectFunc) Registry {
	r, err := NewRegistry(map[string]Factory{"mine": func(Decode) (txn.Selector, error) { return f, nil }})
	if err != nil {
		panic(err)
	}
	return r
}

// Each mistake of an own selector becomes an error with its name, and never another queue, alone and within lanes.
func TestOwnSelectorsThatFail(t *testing.T) {
	queues := onBroker("broker-a", 4)
	for _, tt := range []struct {
		name      string
		f         selectFunc
		code      txn.Code
		want      string
		forClient bool
	}{
		{"panic", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) { panic("boom") }, txn.CodeInternal, "the selector mine failed: it panicked: boom", false},
		{"out of range", func(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
			n := len(queues)
			return txn.Route{Queue: queues[n]}, nil
		}, txn.CodeInternal, "the selector mine failed: it panicked: runtime error: index out of range", false},
		{"queue of nobody", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
			return txn.Route{Queue: txn.Queue{Broker: "broker-a", ID: 9}}, nil
		}, txn.CodeInternal, "the selector mine failed: it answered broker-a:9, which is none of the", false},
		{"no queue", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) { return txn.Route{}, nil }, txn.CodeInternal, "the selector mine failed: it answered :0, which is none of the", false},
		{"an error of its own", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
			return txn.Route{}, errors.New("disk on fire")
		}, txn.CodeInternal, "the selector mine failed: disk on fire", false},
		{"another code", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
			return txn.Route{}, txn.Errorf(txn.CodeRejected, "no")
		}, txn.CodeInternal, "the selector mine failed: rejected: no", false},
		{"refusal", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
			return txn.Route{}, txn.Invalid(txn.FieldError{Pointer: "/shard_key", Message: "must have a region"})
		}, txn.CodeInvalidRequest, "must have a region", true},
		{"outage", func([]txn.Queue, txn.SelectorInput) (txn.Route, error) {
			return txn.Route{}, fmt.Errorf("choosing: %w", txn.BrokerUnavailable(nil, "the region has no queue"))
		}, txn.CodeBrokerUnavailable, "the region has no queue", true},
	} {
		lanes := shop("selector_arg", "mine")
		for place, spec := range map[string]Spec{"alone": {Type: "mine"}, "within lanes": lanes} {
			s, err := registryOf(tt.f).New(spec)
			if err != nil {
				t.Fatal(err)
			}
			route, err := s.Select(queues, txn.SelectorInput{ShardKey: canaryKey})
			e, ok := err.(*txn.Error) //nolint:errorlint // Select promises an *Error
			if !ok || e.Code != tt.code || !strings.Contains(e.Error(), tt.want) || route != (txn.Route{}) {
				t.Errorf("%s, %s: got %+v, %v, want %s: %s", tt.name, place, route, err, tt.code, tt.want)
				continue
			}
			if !tt.forClient && strings.Contains(e.Detail, strings.TrimPrefix(tt.want, "the selector mine failed: ")) {
				t.Errorf("%s, %s: the detail %q tells the cause to clients", tt.name, place, e.Detail)
			}
		}
	}
}

// An own selector has the name that it is registered under, and may change its list.
func TestOwnSelectors(t *testing.T) {
	queues := onBroker("broker-a", 4)
	r := registryOf(func(queues []txn.Queue, _ txn.SelectorInput) (txn.Route, error) {
		last := queues[len(queues)-1]
		clear(queues)
		return txn.Route{Queue: last}, nil
	})
	s, err := r.New(Spec{Type: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		route, err := s.Select(queues, txn.SelectorInput{})
		want := txn.Route{Queue: txn.Queue{Broker: "broker-a", ID: 3}, Selector: "mine", Reason: "chosen by mine"}
		if err != nil || route != want || s.Name() != "mine" {
			t.Errorf("got %+v of %s, %v, want %+v", route, s.Name(), err, want)
		}
	}
	if _, err := s.Select(nil, txn.SelectorInput{}); txn.CodeOf(err) != txn.CodeBrokerUnavailable {
		t.Errorf("without queues: got %v, want %s", err, txn.CodeBrokerUnavailable)
	}
}

func TestRegistryRefuses(t *testing.T) {
	nothing := func(Decode) (txn.Selector, error) { return nil, nil } //nolint:nilnil // the mistake
	for _, tt := range []struct {
		r    map[string]Factory
		spec Spec
		want string
	}{
		{map[string]Factory{"hash": nothing}, Spec{}, `own selector type "hash": this is the name of a shipped type`},
		{map[string]Factory{"lanes": nothing}, Spec{}, `own selector type "lanes": this is the name of a shipped type`},
		{map[string]Factory{"My": nothing}, Spec{}, `own selector type "My": the name has small letters, digits and . _ - and begins with a letter`},
		{map[string]Factory{"": nothing}, Spec{}, `own selector type "": the name has small letters, digits and . _ - and begins with a letter`},
		{map[string]Factory{"mine": nil}, Spec{}, `own selector type "mine": there is no factory`},
		{map[string]Factory{"mine": nothing}, Spec{Type: "mine"}, "selector mine: its factory returned no selector"},
		{map[string]Factory{"mine": nothing}, Spec{Type: "yours"}, `/type: selector type "yours" is unknown; there are consistent, hash, java_hash, lanes, mine, queue, round_robin`},
		{nil, Spec{OnChange: "stay"}, "/on_change: must be remap or refuse"},
		{nil, Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Within: Spec{OnChange: txn.OnChangeRemap}, Lanes: []Lane{{Name: "a", Queues: ids(0)}}}},
			"/within/on_change: belongs to the selector around it"},
		{nil, Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Lanes: []Lane{{Name: "a", Queues: ids(0)}, {Name: "a", Queues: ids(1), Match: []string{}}}}},
			"/lanes/a: there is a lane with this name already"},
	} {
		r, err := NewRegistry(tt.r)
		if err == nil {
			_, err = r.New(tt.spec)
		}
		if err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
