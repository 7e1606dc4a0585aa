package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/txn"
)

// laneSpecs draws lanes of all kinds, whose rules are made of few letters so that they meet values.
func laneSpecs() *rapid.Generator[Spec] {
	ref := rapid.Custom(func(t *rapid.T) QueueRef {
		return QueueRef{Broker: rapid.SampledFrom([]string{"", "broker-a", "broker-b"}).Draw(t, "broker"), ID: rapid.IntRange(0, 15).Draw(t, "id")}
	})
	return rapid.Custom(func(t *rapid.T) Spec {
		spec := &Lanes{By: rapid.SampledFrom([]string{"selector_arg", "header:X-Lane", "payload:/tenant"}).Draw(t, "by")}
		spec.Within.Type = rapid.SampledFrom([]string{TypeHash, TypeJavaHash, TypeConsistent}).Draw(t, "within")
		matches := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab]{1,3}\*?`), 0, 12, func(s string) string { return s }).Draw(t, "matches")
		for i := range rapid.IntRange(1, 5).Draw(t, "lanes") {
			lane := Lane{Name: fmt.Sprint("lane-", i), Match: []string{}, Share: float64(rapid.IntRange(0, 20).Draw(t, "share"))}
			lane.Queues = rapid.SliceOfNDistinct(ref, 1, 6, func(q QueueRef) int { return q.ID }).Draw(t, "refs")
			n := rapid.IntRange(0, len(matches)).Draw(t, "rules")
			lane.Match, matches = append(lane.Match, matches[:n]...), matches[n:]
			spec.Lanes = append(spec.Lanes, lane)
		}
		if rapid.Bool().Draw(t, "default") {
			spec.Lanes = append(spec.Lanes, Lane{Name: LaneDefault, Queues: ids(0, 1, 2, 3)})
		}
		return Spec{Type: TypeLanes, Lanes: spec}
	})
}

// inputs draws requests that name the value in every way at once.
func inputs() *rapid.Generator[txn.SelectorInput] {
	return rapid.Custom(func(t *rapid.T) txn.SelectorInput {
		value := rapid.StringMatching(`[ab]{0,4}`).Draw(t, "value")
		in := txn.SelectorInput{ShardKey: rapid.StringN(0, 20, 40).Draw(t, "key")}
		if rapid.IntRange(0, 4).Draw(t, "given") > 0 {
			quoted, _ := json.Marshal(value)
			in.Arg = quoted
			in.Payload = json.RawMessage(`{"a":[1],"tenant":` + string(quoted) + `}`)
			in.Header = header("X-Lane", value)
		}
		return in
	})
}

// wantLanes returns, by the documented rules, the lanes that may take a message. It ignores shares.
func wantLanes(spec *Lanes, in txn.SelectorInput) []string {
	var value string
	given := in.Arg != nil && json.Unmarshal(in.Arg, &value) == nil
	if given && (value != "" || spec.By != "header:X-Lane") {
		best, longest := "", -1
		for _, lane := range spec.Lanes {
			for _, match := range lane.rules() {
				prefix, isPrefix := strings.CutSuffix(match, "*")
				if !isPrefix && match == value {
					return []string{lane.Name}
				}
				if isPrefix && strings.HasPrefix(value, prefix) && len(prefix) > longest {
					best, longest = lane.Name, len(prefix)
				}
			}
		}
		if best != "" {
			return []string{best}
		}
	}
	var open []string
	for _, lane := range spec.Lanes {
		if lane.Share > 0 || lane.Name == LaneDefault {
			open = append(open, lane.Name)
		}
	}
	return open
}

// For any lanes, queues and messages, two replicas choose the same, in whatever order they see the messages and lists.
// The lane is one that the rules allow, and the queue one of the lane's; or there is an error that fits.
func TestLanesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := laneSpecs().Draw(t, "spec")
		one, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		other, _ := New(spec)
		type call struct {
			queues []txn.Queue
			in     txn.SelectorInput
			route  txn.Route
			err    error
		}
		var calls []call
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			c := call{queues: queueLists().Draw(t, "queues"), in: inputs().Draw(t, "in")}
			c.route, c.err = one.Select(c.queues, c.in)
			checkLaneRoute(t, spec.Lanes, c.queues, c.in, c.route, c.err)
			calls = append(calls, c)
		}
		for _, i := range rapid.Permutation(indexes(len(calls))).Draw(t, "order") {
			c := calls[i]
			route, err := other.Select(slices.Clone(c.queues), c.in)
			if route != c.route || fmt.Sprint(err) != fmt.Sprint(c.err) {
				t.Fatalf("got %+v, %v; the other replica %+v, %v", route, err, c.route, c.err)
			}
		}
	})
}

func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func checkLaneRoute(t *rapid.T, spec *Lanes, queues []txn.Queue, in txn.SelectorInput, route txn.Route, err error) {
	allowed := wantLanes(spec, in)
	if err == nil {
		if !slices.Contains(allowed, route.Lane) || !slices.Contains(laneQueues(queues, spec, route.Lane), route.Queue) {
			t.Fatalf("got %+v, want one of the lanes %v, of %v", route, allowed, queues)
		}
		return
	}
	switch txn.CodeOf(err) {
	case txn.CodeInvalidRequest:
		if slices.Contains(allowed, LaneDefault) || len(allowed) == 1 && wantsNoShare(spec, allowed[0]) {
			t.Fatalf("got %v, want one of the lanes %v", err, allowed)
		}
	case txn.CodeBrokerUnavailable:
		empty := func(name string) bool {
			return strings.Contains(err.Error(), "the lane "+name+" ") && laneQueues(queues, spec, name) == nil
		}
		if !slices.ContainsFunc(allowed, empty) {
			t.Fatalf("got %v, want a lane of %v without queues", err, allowed)
		}
	default:
		t.Fatal(err)
	}
}

func wantsNoShare(spec *Lanes, name string) bool {
	i := slices.IndexFunc(spec.Lanes, func(l Lane) bool { return l.Name == name })
	return spec.Lanes[i].Share == 0
}
