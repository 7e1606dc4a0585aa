package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txsvc/txsvc/internal/txn"
)

// shop is the lanes of the documentation, with a tie between rules.
func shop(by string, within string) Spec {
	return Spec{Type: TypeLanes, Lanes: &Lanes{By: by, Within: Spec{Type: within}, Lanes: []Lane{
		{Name: "canary", Queues: ids(0), Share: 5},
		{Name: "big", Queues: ids(1, 2), Match: []string{"acme", "acme-*"}},
		{Name: "lab", Queues: []QueueRef{{Broker: "broker-b", ID: 3}}, Match: []string{"acme-lab-*", "acme-x"}},
		{Name: "default", Queues: ids(4, 5, 6, 7)},
	}}}
}

// Two shard keys. The first test checks the comments.
const (
	stableKey = "stable-1"  // in no share of 5 %
	canaryKey = "canary-16" // in it
)

func TestSharesOfTheKnownKeys(t *testing.T) {
	l := mustMake(t, shop("selector_arg", "")).(*lanes) //nolint:forcetypeassert // it was made as one
	if got := l.point(stableKey); got < 50_000 {
		t.Errorf("the point of %s: got %d, want at least 50000", stableKey, got)
	}
	if got := l.point(canaryKey); got >= 50_000 {
		t.Errorf("the point of %s: got %d, want less than 50000", canaryKey, got)
	}
}

func header(name, text string) func(string) string {
	return func(want string) string {
		if want == name {
			return text
		}
		return ""
	}
}

func TestLanes(t *testing.T) {
	two := queuesOf(8, "broker-a", "broker-b")
	arg := func(text string) txn.SelectorInput {
		return txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(text)}
	}
	payload := func(text string) txn.SelectorInput {
		return txn.SelectorInput{ShardKey: stableKey, Payload: json.RawMessage(text)}
	}
	for _, tt := range []struct {
		name, by   string
		in         txn.SelectorInput
		lane, why  string
		queuesHave int
	}{
		{"exact", "selector_arg", arg(`"acme"`), "big", "match acme", 4},
		{"prefix", "selector_arg", arg(`"acme-eu"`), "big", "match acme-*", 4},
		{"longest prefix", "selector_arg", arg(`"acme-lab-1"`), "lab", "match acme-lab-*", 1},
		{"exact before prefix", "selector_arg", arg(`"acme-x"`), "lab", "match acme-x", 1},
		{"no prefix without its end", "selector_arg", arg(`"acme-lab"`), "big", "match acme-*", 4},
		{"a lane's own name", "selector_arg", arg(`"canary"`), "canary", "match canary", 2},
		{"the default lane's name", "selector_arg", arg(`"default"`), "default", "match default", 8},
		{"not the name of a lane with match", "selector_arg", arg(`"big"`), "default", "no rule", 8},
		{"other case", "selector_arg", arg(`"Acme"`), "default", "no rule", 8},
		{"unknown", "selector_arg", arg(`"other"`), "default", "no rule", 8},
		{"empty", "selector_arg", arg(`""`), "default", "no rule", 8},
		{"missing", "selector_arg", arg(``), "default", "no rule", 8},
		{"null", "selector_arg", arg(`null`), "default", "no rule", 8},
		{"escapes", "selector_arg", arg(` "acm\u0065-\"" `), "big", "match acme-*", 4},
		{"object", "selector_arg", arg(`{"lane":"acme"}`), "big", "match acme", 4},
		{"object without lane", "selector_arg", arg(`{"arg":1}`), "default", "no rule", 8},
		{"object with null", "selector_arg", arg(`{"lane":null}`), "default", "no rule", 8},
		{"header", "header:X-Lane", txn.SelectorInput{ShardKey: stableKey, Header: header("X-Lane", "acme")}, "big", "match acme", 4},
		{"header missing", "header:X-Lane", txn.SelectorInput{ShardKey: stableKey, Header: header("Other", "acme")}, "default", "no rule", 8},
		{"no request", "header:X-Lane", txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(`"acme"`)}, "default", "no rule", 8},
		{"payload", "payload:/tenant", payload(`{"id":1,"tenant":"acme"}`), "big", "match acme", 4},
		{"payload in depth", "payload:/a~1b/1/x~0", payload(`{"a/b":[{},{"y":0,"x~":"acme"}]}`), "big", "match acme", 4},
		{"payload without it", "payload:/tenant", payload(`{"id":1}`), "default", "no rule", 8},
		{"payload of another shape", "payload:/tenant/name", payload(`{"tenant":"acme"}`), "default", "no rule", 8},
		{"payload that is no object", "payload:/tenant", payload(`7`), "default", "no rule", 8},
		{"no payload", "payload:/tenant", payload(``), "default", "no rule", 8},
		{"payload with null", "payload:/tenant", payload(`{"tenant":null}`), "default", "no rule", 8},
		{"share", "selector_arg", txn.SelectorInput{ShardKey: canaryKey}, "canary", "share 5%", 2},
		{"share of an unknown value", "selector_arg", txn.SelectorInput{ShardKey: canaryKey, Arg: json.RawMessage(`"other"`)}, "canary", "share 5%", 2},
		{"rules before shares", "selector_arg", txn.SelectorInput{ShardKey: canaryKey, Arg: json.RawMessage(`"acme-1"`)}, "big", "match acme-*", 4},
	} {
		spec := shop(tt.by, TypeHash)
		got, err := mustMake(t, spec).Select(two, tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		own := laneQueues(two, spec.Lanes, tt.lane)
		h := fnv1a64(tt.in.ShardKey) % uint64(tt.queuesHave)
		want := txn.Route{
			Queue: own[h], Selector: TypeLanes, Lane: tt.lane,
			Reason: fmt.Sprintf("lane %s (%s), fnv1a64(shard_key) mod %d = %d", tt.lane, tt.why, tt.queuesHave, h),
		}
		if diff := cmp.Diff(want, got); diff != "" || len(own) != tt.queuesHave {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// laneQueues returns a lane's queues of a list, in the simplest way.
func laneQueues(queues []txn.Queue, spec *Lanes, name string) []txn.Queue {
	var own []txn.Queue
	for _, lane := range spec.Lanes {
		for _, queue := range queues {
			for _, ref := range lane.Queues {
				if lane.Name == name && ref.ID == queue.ID && (ref.Broker == "" || ref.Broker == queue.Broker) {
					own = append(own, queue)
				}
			}
		}
	}
	return own
}

func TestLanesRefuse(t *testing.T) {
	noDefault := func(by, within string) Spec {
		spec := shop(by, within)
		spec.Lanes.Lanes = spec.Lanes.Lanes[:3]
		return spec
	}
	one := onBroker("broker-a", 8)
	arg := func(text string) txn.SelectorInput {
		return txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(text)}
	}
	invalid := func(pointer, message string) txn.Error {
		return *txn.Invalid(txn.FieldError{Pointer: pointer, Message: message})
	}
	const argForm = "must be a string that names the lane, or an object with lane and arg"
	for _, tt := range []struct {
		name   string
		spec   Spec
		queues []txn.Queue
		in     txn.SelectorInput
		want   txn.Error
	}{
		{"unknown lane", noDefault("selector_arg", ""), one, arg(`"other"`), invalid("/selector_arg", "names no lane, and there is no default lane")},
		{"no lane", noDefault("selector_arg", ""), one, arg(``), invalid("/selector_arg", "is required: it names the lane, and there is no default lane")},
		{"unknown lane in a header", noDefault("header:X-Lane", ""), one, txn.SelectorInput{ShardKey: stableKey, Header: header("X-Lane", "other")},
			invalid("", "the header X-Lane names no lane, and there is no default lane")},
		{"no header", noDefault("header:X-Lane", ""), one, txn.SelectorInput{ShardKey: stableKey, Header: header("", "")},
			invalid("", "the header X-Lane is required: it names the lane, and there is no default lane")},
		{"unknown lane in the payload", noDefault("payload:/a/b~1", ""), one, txn.SelectorInput{ShardKey: stableKey, Payload: json.RawMessage(`{"a":{"b/":"other"}}`)},
			invalid("/payload/a/b~1", "names no lane, and there is no default lane")},
		{"number", shop("selector_arg", ""), one, arg(`3`), invalid("/selector_arg", argForm)},
		{"bool", shop("selector_arg", ""), one, arg(`true`), invalid("/selector_arg", argForm)},
		{"list", shop("selector_arg", ""), one, arg(`["acme"]`), invalid("/selector_arg", argForm)},
		{"number in an object", shop("selector_arg", ""), one, arg(`{"lane":3}`), invalid("/selector_arg/lane", "must be a string: it names the lane")},
		{"another member", shop("selector_arg", ""), one, arg(`{"lane":"acme","args":3}`), invalid("/selector_arg/args", "is unknown: there are lane and arg")},
		{"member twice", shop("selector_arg", ""), one, arg(`{"lane":"a","lane":"b"}`), invalid("/selector_arg/lane", "is there twice")},
		{"broken object", shop("selector_arg", ""), one, arg(`{"lane":"a"`), invalid("/selector_arg", "is not valid JSON")},
		{"broken string", shop("selector_arg", ""), one, arg(`"a`), invalid("/selector_arg", "is not valid JSON")},
		{"number in the payload", shop("payload:/tenant", ""), one, txn.SelectorInput{ShardKey: stableKey, Payload: json.RawMessage(`{"tenant":3}`)},
			invalid("/payload/tenant", "must be a string: it names the lane")},
		{"object in the payload", shop("payload:/tenant", ""), one, txn.SelectorInput{ShardKey: stableKey, Payload: json.RawMessage(`{"tenant":{"lane":"acme"}}`)},
			invalid("/payload/tenant", "must be a string: it names the lane")},
		{"broken payload", shop("payload:/tenant", ""), one, txn.SelectorInput{ShardKey: stableKey, Payload: json.RawMessage(`{"a":`)},
			invalid("/payload", "is not valid JSON")},
		{"within: no argument", shop("selector_arg", TypeQueue), one, arg(`"acme"`),
			invalid("/selector_arg/arg", "in the lane big: is required: the queue's id, or an object with broker and id")},
		{"within: queue of another lane", shop("selector_arg", TypeQueue), one, arg(`{"lane":"acme","arg":5}`),
			invalid("/selector_arg/arg", "in the lane big: there is no usable queue with the id 5")},
		{"within: wrong argument", shop("selector_arg", TypeQueue), one, arg(`{"lane":"acme","arg":{"broker":"b"}}`),
			invalid("/selector_arg/arg/id", "in the lane big: is required: the queue's id on the broker")},
		{"within: argument beside a header", shop("header:X-Lane", TypeQueue), one, txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(`9`)},
			invalid("/selector_arg", "in the lane default: there is no usable queue with the id 9")},
		{"lane without queues", shop("selector_arg", ""), one, arg(`"acme-x"`), txn.Error{
			Code: txn.CodeBrokerUnavailable, Detail: "the lane lab has no usable queue now: of its queues (broker-b:3) the topic has none",
		}},
		{"canary without queues", shop("selector_arg", ""), one[4:], txn.SelectorInput{ShardKey: canaryKey}, txn.Error{
			Code: txn.CodeBrokerUnavailable, Detail: "the lane canary has no usable queue now: of its queues (0) the topic has none",
		}},
	} {
		_, err := mustMake(t, tt.spec).Select(tt.queues, tt.in)
		got, ok := err.(*txn.Error) //nolint:errorlint // Select promises an *Error
		if !ok {
			t.Errorf("%s: got %v, want an *Error", tt.name, err)
			continue
		}
		if got.Code == txn.CodeBrokerUnavailable && got.RetryAfter == 0 {
			t.Errorf("%s: got no RetryAfter", tt.name)
		}
		plain := *got
		plain.RetryAfter = 0
		if diff := cmp.Diff(tt.want, plain); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// A selector within a lane sees the lane's queues only, and its own part of selector_arg.
func TestLanesWithin(t *testing.T) {
	two := queuesOf(8, "broker-a", "broker-b")
	in := txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(`{"lane":"acme-lab-1","arg":{"broker":"broker-b","id":3}}`)}
	got, err := mustMake(t, shop("selector_arg", TypeQueue)).Select(two, in)
	want := txn.Route{Queue: txn.Queue{Broker: "broker-b", ID: 3}, Selector: TypeLanes, Lane: "lab", Reason: "lane lab (match acme-lab-*), selector_arg names broker and id"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("queue: %v (-want +got)\n%s", err, diff)
	}
	robin := mustMake(t, shop("selector_arg", TypeRoundRobin))
	seen := make(map[txn.Queue]int)
	for range 40 {
		got, err := robin.Select(two, txn.SelectorInput{ShardKey: stableKey, Arg: json.RawMessage(`"acme"`)})
		if err != nil {
			t.Fatal(err)
		}
		seen[got.Queue]++
	}
	if want := map[txn.Queue]int{{Broker: "broker-a", ID: 1}: 10, {Broker: "broker-a", ID: 2}: 10, {Broker: "broker-b", ID: 1}: 10, {Broker: "broker-b", ID: 2}: 10}; !cmp.Equal(want, seen) {
		t.Errorf("round_robin: got %v, want %v", seen, want)
	}
}

// Lanes within lanes: the queues of both, and the names of both.
func TestLanesWithinLanes(t *testing.T) {
	inner := Spec{Type: TypeLanes, Lanes: &Lanes{By: "header:X-Lane", Lanes: []Lane{
		{Name: "canary", Queues: ids(0, 4), Share: 5}, {Name: "default", Queues: ids(1, 2, 3, 5, 6, 7)},
	}}}
	spec := Spec{Type: TypeLanes, Lanes: &Lanes{By: "selector_arg", Within: inner, Lanes: []Lane{
		{Name: "eu", Queues: ids(0, 1, 2, 3)}, {Name: "us", Queues: ids(4, 5, 6, 7)},
	}}}
	s := mustMake(t, spec)
	for _, tt := range []struct {
		arg, header, lane, reason string
		queue                     int
	}{
		{`"eu"`, "canary", "eu/canary", "lane eu (match eu), lane canary (match canary), fnv1a64(shard_key) mod 1 = 0", 0},
		{`{"lane":"us"}`, "canary", "us/canary", "lane us (match us), lane canary (match canary), fnv1a64(shard_key) mod 1 = 0", 4},
		{`"us"`, "default", "us/default", "lane us (match us), lane default (match default), fnv1a64(shard_key) mod 3 = 0", 5},
	} {
		got, err := s.Select(onBroker("broker-a", 8), txn.SelectorInput{ShardKey: "c", Arg: json.RawMessage(tt.arg), Header: header("X-Lane", tt.header)})
		want := txn.Route{Queue: txn.Queue{Broker: "broker-a", ID: tt.queue}, Selector: TypeLanes, Lane: tt.lane, Reason: tt.reason}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s, %s: %v (-want +got)\n%s", tt.arg, tt.header, err, diff)
		}
	}
	_, err := s.Select(onBroker("broker-a", 4)[1:], txn.SelectorInput{Arg: json.RawMessage(`"eu"`), Header: header("X-Lane", "canary")})
	if err == nil || !strings.Contains(err.Error(), "in the lane eu: the lane canary has no usable queue now") {
		t.Errorf("inner lane without queues: got %v", err)
	}
}

// A route has words of the configuration, and never values of the request.
func TestRoutesHoldNothingOfTheRequest(t *testing.T) {
	const secret = "s3cret"
	queues := queuesOf(8, "broker-a", "broker-b")
	ids := map[string]string{secret: "4", "acme-" + secret: "1"} // of queues in the lanes of these values
	for _, by := range []string{"selector_arg", "header:X-Lane", "payload:/tenant"} {
		for _, within := range []string{TypeHash, TypeJavaHash, TypeConsistent, TypeRoundRobin, TypeQueue} {
			for value, id := range ids {
				in := txn.SelectorInput{
					ShardKey: secret, Header: func(string) string { return value },
					Arg:     json.RawMessage(`{"broker":"broker-a","id":` + id + `}`),
					Payload: json.RawMessage(`{"tenant":"` + value + `","x":"` + secret + `"}`),
				}
				if by == "selector_arg" {
					in.Arg = json.RawMessage(`{"lane":"` + value + `","arg":` + string(in.Arg) + `}`)
				}
				route, err := mustMake(t, shop(by, within)).Select(queues, in)
				if err != nil {
					t.Fatalf("by %s, within %s: %v", by, within, err)
				}
				if strings.Contains(fmt.Sprintf("%+v", route), secret) || route.Lane == "" {
					t.Errorf("by %s, within %s: got %+v, which repeats the request", by, within, route)
				}
			}
		}
	}
}

func TestLanesAreSafeForConcurrentUse(t *testing.T) {
	s := mustMake(t, shop("selector_arg", TypeConsistent))
	lists := [][]txn.Queue{onBroker("broker-a", 8), queuesOf(8, "broker-a", "broker-b"), onBroker("broker-b", 9), onBroker("broker-c", 8), onBroker("broker-d", 7), onBroker("broker-e", 6)}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				queues := lists[(i+worker)%len(lists)]
				got, err := s.Select(queues, txn.SelectorInput{ShardKey: fmt.Sprint(i), Arg: json.RawMessage(`"acme"`)})
				if err != nil || got.Lane != "big" || !slices.Contains(queues, got.Queue) || got.Queue.ID != 1 && got.Queue.ID != 2 {
					t.Errorf("of %v: got %+v, %v", queues, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
