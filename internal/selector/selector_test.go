package selector

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/txn"
)

func mustNew(t testing.TB, name string) txn.Selector {
	t.Helper()
	spec := Spec{Type: name}
	if name == TypeLanes {
		spec.Lanes = &Lanes{By: "header:X-Lane", Lanes: []Lane{{Name: "canary", Queues: ids(0, 1, 2), Share: 5}, {Name: "default", Queues: ids(0, 1, 2, 3, 4, 5, 6, 7)}}}
	}
	return mustMake(t, spec)
}

func mustMake(t testing.TB, spec Spec) txn.Selector {
	t.Helper()
	s, err := New(spec)
	if err != nil {
		t.Fatalf("New(%+v): %v", spec, err)
	}
	return s
}

// ids names queues on every broker.
func ids(ids ...int) []QueueRef {
	refs := make([]QueueRef, len(ids))
	for i, id := range ids {
		refs[i].ID = id
	}
	return refs
}

// onBroker returns the queues 0 to n-1 of one broker.
func onBroker(broker string, n int) []txn.Queue {
	queues := make([]txn.Queue, n)
	for i := range queues {
		queues[i] = txn.Queue{Broker: broker, ID: i}
	}
	return queues
}

// queueLists draws sorted lists of queues over one to four brokers.
func queueLists() *rapid.Generator[[]txn.Queue] {
	return rapid.Custom(func(t *rapid.T) []txn.Queue {
		queues := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) txn.Queue {
			return txn.Queue{
				Broker: rapid.SampledFrom([]string{"broker-a", "broker-b", "broker-c", "rmq-10"}).Draw(t, "broker"),
				ID:     rapid.IntRange(0, 15).Draw(t, "id"),
			}
		}), 1, 40, func(q txn.Queue) txn.Queue { return q }).Draw(t, "queues")
		slices.SortFunc(queues, txn.Queue.Compare)
		return queues
	})
}

func TestNew(t *testing.T) {
	for _, tt := range []struct{ spec, want, wantErr string }{
		{spec: "", want: "hash"},
		{spec: "hash", want: "hash"},
		{spec: "java_hash", want: "java_hash"},
		{spec: "queue", want: "queue"},
		{spec: "round_robin", want: "round_robin"},
		{spec: "consistent", want: "consistent"},
		{spec: "lanes", wantErr: "by and lanes are required"},
		{spec: "Hash", wantErr: `/type: selector type "Hash" is unknown; there are consistent, hash, java_hash, lanes, queue, round_robin`},
	} {
		got, err := New(Spec{Type: tt.spec})
		switch {
		case tt.wantErr != "":
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("New(%q): got error %v, want %q", tt.spec, err, tt.wantErr)
			}
		case err != nil:
			t.Errorf("New(%q): %v", tt.spec, err)
		case got.Name() != tt.want:
			t.Errorf("New(%q).Name(): got %q, want %q", tt.spec, got.Name(), tt.want)
		}
	}
}

func TestNoQueueIsAnErrorForEveryType(t *testing.T) {
	for _, name := range shipped().Types() {
		_, err := mustNew(t, name).Select(nil, txn.SelectorInput{ShardKey: "k", Arg: json.RawMessage("0")})
		if code := txn.CodeOf(err); err == nil || code != txn.CodeBrokerUnavailable {
			t.Errorf("%s without queues: got %v, want code %s", name, err, txn.CodeBrokerUnavailable)
		}
	}
}

func TestHashIsFNV1aModuloTheSortedQueues(t *testing.T) {
	s := mustNew(t, TypeHash)
	rapid.Check(t, func(t *rapid.T) {
		queues, key := queueLists().Draw(t, "queues"), rapid.String().Draw(t, "key")
		h := fnv.New64a()
		h.Write([]byte(key))
		want := queues[h.Sum64()%uint64(len(queues))]
		got, err := s.Select(queues, txn.SelectorInput{ShardKey: key})
		if err != nil || got.Queue != want {
			t.Fatalf("got %v, %v, want %v", got.Queue, err, want)
		}
	})
}

func TestReasonTellsNumberAndIndex(t *testing.T) {
	s := mustNew(t, TypeHash)
	// FNV-1a 64 of "a" is 0xaf63dc4c8601ec8c (draft-eastlake-fnv, appendix): 4 modulo 8, 1 modulo 5.
	for _, tt := range []struct {
		n    int
		want string
	}{{8, "fnv1a64(shard_key) mod 8 = 4"}, {5, "fnv1a64(shard_key) mod 5 = 1"}, {8, "fnv1a64(shard_key) mod 8 = 4"}} {
		got, err := s.Select(onBroker("broker-a", tt.n), txn.SelectorInput{ShardKey: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if got.Reason != tt.want || got.Selector != TypeHash {
			t.Errorf("got %q by %q, want %q by hash", got.Reason, got.Selector, tt.want)
		}
	}
}

// Keyed selectors give one key one queue, in the list, whatever selector_arg says, and from any goroutine.
func TestKeyedSelectorsDependOnKeyAndQueuesOnly(t *testing.T) {
	for _, name := range []string{TypeHash, TypeJavaHash, TypeConsistent} {
		one, other := mustNew(t, name), mustNew(t, name)
		rapid.Check(t, func(t *rapid.T) {
			queues, key := queueLists().Draw(t, "queues"), rapid.String().Draw(t, "key")
			first, err := one.Select(queues, txn.SelectorInput{ShardKey: key})
			if err != nil {
				t.Fatal(err)
			}
			second, err := other.Select(queues, txn.SelectorInput{ShardKey: key, Arg: json.RawMessage(`{"broker":"x"}`)})
			if err != nil {
				t.Fatal(err)
			}
			if first != second || !slices.Contains(queues, first.Queue) {
				t.Fatalf("%s: got %v, then %v, of %v", name, first, second, queues)
			}
		})
	}
}

// One selector serves every goroutine, while its list of queues changes.
func TestSelectorsAreSafeForConcurrentUse(t *testing.T) {
	for _, name := range shipped().Types() {
		s := mustNew(t, name)
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range 500 {
					n := 1 + (i+worker)%5
					got, err := s.Select(onBroker("broker-a", n), txn.SelectorInput{ShardKey: "key", Arg: json.RawMessage("0")})
					if err != nil || got.Queue.ID >= n || got.Reason == "" {
						t.Errorf("%s of %d queues: got %+v, %v", name, n, got, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestRoundRobinTakesEveryQueueInTurn(t *testing.T) {
	s := mustNew(t, TypeRoundRobin)
	queues := onBroker("broker-a", 7)
	var mu sync.Mutex
	counts := make(map[txn.Queue]int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 7 * 25 {
				route, err := s.Select(queues, txn.SelectorInput{ShardKey: "same"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				counts[route.Queue]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, queue := range queues {
		if counts[queue] != 200 {
			t.Errorf("%v: got %d of 1400, want 200", queue, counts[queue])
		}
	}
}

// 20,000 keys over 8 queues: every queue is within 5 standard deviations of its share.
func TestHashSpreadsSimilarKeys(t *testing.T) {
	const keys, n = 20_000, 8
	s := mustNew(t, TypeHash)
	counts := make([]int, n)
	for i := range keys {
		key := "customer-" + strings.Repeat("0", i%3) + string(rune('a'+i%26)) + "-" + strings.Repeat("7", i/1000) + strconv.Itoa(i)
		route, err := s.Select(onBroker("broker-a", n), txn.SelectorInput{ShardKey: key})
		if err != nil {
			t.Fatal(err)
		}
		counts[route.Queue.ID]++
	}
	mean := float64(keys) / n
	for id, count := range counts {
		if math.Abs(float64(count)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("queue %d: got %d keys, want about %.0f (all: %v)", id, count, mean, counts)
		}
	}
}

func TestQueueByArgument(t *testing.T) {
	one := onBroker("broker-a", 4)
	two := append(onBroker("broker-a", 4), onBroker("broker-b", 6)...)
	for _, tt := range []struct {
		name   string
		queues []txn.Queue
		arg    string
		want   txn.Queue
		reason string
	}{
		{"id on the only broker", one, `3`, txn.Queue{Broker: "broker-a", ID: 3}, "selector_arg names the id"},
		{"spaces around", one, " 3\n", txn.Queue{Broker: "broker-a", ID: 3}, "selector_arg names the id"},
		{"id that one of two brokers has", two, `5`, txn.Queue{Broker: "broker-b", ID: 5}, "selector_arg names the id"},
		{"broker and id", two, `{"broker":"broker-b","id":2}`, txn.Queue{Broker: "broker-b", ID: 2}, "selector_arg names broker and id"},
		{"order of members", two, `{"id": 0, "broker": "broker-a"}`, txn.Queue{Broker: "broker-a", ID: 0}, "selector_arg names broker and id"},
	} {
		got, err := mustNew(t, TypeQueue).Select(tt.queues, txn.SelectorInput{ShardKey: "k", Arg: json.RawMessage(tt.arg)})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(txn.Route{Queue: tt.want, Selector: TypeQueue, Reason: tt.reason}, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestQueueRefusals(t *testing.T) {
	one := onBroker("broker-a", 4)
	two := append(onBroker("broker-a", 4), onBroker("broker-b", 6)...)
	for _, tt := range []struct {
		name   string
		queues []txn.Queue
		arg    string
		want   txn.FieldError
	}{
		{"missing", one, ``, txn.FieldError{Pointer: "/selector_arg", Message: "is required: the queue's id, or an object with broker and id"}},
		{"null", one, `null`, txn.FieldError{Pointer: "/selector_arg", Message: "is required: the queue's id, or an object with broker and id"}},
		{"text", one, `"3"`, txn.FieldError{Pointer: "/selector_arg", Message: "must be a queue's id, or an object with broker and id"}},
		{"list", one, `[3]`, txn.FieldError{Pointer: "/selector_arg", Message: "must be a queue's id, or an object with broker and id"}},
		{"fraction", one, `1.5`, txn.FieldError{Pointer: "/selector_arg", Message: "must be a whole number: a queue's id"}},
		{"exponent", one, `1e0`, txn.FieldError{Pointer: "/selector_arg", Message: "must be a whole number: a queue's id"}},
		{"too large", one, `99999999999999999999`, txn.FieldError{Pointer: "/selector_arg", Message: "must be a whole number: a queue's id"}},
		{"negative", one, `-1`, txn.FieldError{Pointer: "/selector_arg", Message: "there is no usable queue with the id -1"}},
		{"no such id", one, `4`, txn.FieldError{Pointer: "/selector_arg", Message: "there is no usable queue with the id 4"}},
		{"ambiguous", two, `2`, txn.FieldError{Pointer: "/selector_arg", Message: "the id 2 is on the brokers broker-a and broker-b: name the broker, too"}},
		{"no such queue", two, `{"broker":"broker-a","id":5}`, txn.FieldError{Pointer: "/selector_arg", Message: "there is no usable queue broker-a:5"}},
		{"no broker", two, `{"id":1}`, txn.FieldError{Pointer: "/selector_arg/broker", Message: "is required: the broker's name"}},
		{"empty broker", two, `{"broker":"","id":1}`, txn.FieldError{Pointer: "/selector_arg/broker", Message: "is required: the broker's name"}},
		{"no id", two, `{"broker":"broker-a"}`, txn.FieldError{Pointer: "/selector_arg/id", Message: "is required: the queue's id on the broker"}},
		{"null id", two, `{"broker":"broker-a","id":null}`, txn.FieldError{Pointer: "/selector_arg/id", Message: "is required: the queue's id on the broker"}},
		{"id is text", two, `{"broker":"broker-a","id":"1"}`, txn.FieldError{Pointer: "/selector_arg/id", Message: "has the wrong type: broker is a string, id a whole number"}},
		{"id is a fraction", two, `{"broker":"broker-a","id":1.5}`, txn.FieldError{Pointer: "/selector_arg/id", Message: "has the wrong type: broker is a string, id a whole number"}},
		{"other member", two, `{"broker":"broker-a","id":1,"lane":"x"}`, txn.FieldError{Pointer: "/selector_arg/lane", Message: "is unknown: there are broker and id"}},
		{"other case", two, `{"Broker":"broker-a","id":1}`, txn.FieldError{Pointer: "/selector_arg/Broker", Message: "is unknown: there are broker and id"}},
		{"member twice", two, `{"id":1,"id":2}`, txn.FieldError{Pointer: "/selector_arg/id", Message: "is there twice"}},
		{"broken", two, `{"id":1`, txn.FieldError{Pointer: "/selector_arg", Message: "is not valid JSON"}},
	} {
		_, err := mustNew(t, TypeQueue).Select(tt.queues, txn.SelectorInput{ShardKey: "k", Arg: json.RawMessage(tt.arg)})
		var got *txn.Error
		if err != nil {
			got, _ = err.(*txn.Error) //nolint:errorlint // Select promises an *Error
		}
		if got == nil || got.Code != txn.CodeInvalidRequest {
			t.Errorf("%s: got %v, want %s", tt.name, err, txn.CodeInvalidRequest)
			continue
		}
		if diff := cmp.Diff([]txn.FieldError{tt.want}, got.Fields); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

// Any queue of any list can be named by broker and id; by id alone exactly if no other broker has it.
func TestQueueFindsEveryQueue(t *testing.T) {
	s := mustNew(t, TypeQueue)
	rapid.Check(t, func(t *rapid.T) {
		queues := queueLists().Draw(t, "queues")
		want := rapid.SampledFrom(queues).Draw(t, "want")
		arg, err := json.Marshal(map[string]any{"broker": want.Broker, "id": want.ID})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Select(queues, txn.SelectorInput{Arg: arg})
		if err != nil || got.Queue != want {
			t.Fatalf("by broker and id: got %v, %v, want %v", got.Queue, err, want)
		}
		same := 0
		for _, queue := range queues {
			if queue.ID == want.ID {
				same++
			}
		}
		got, err = s.Select(queues, txn.SelectorInput{Arg: json.RawMessage(strconv.Itoa(want.ID))})
		if same == 1 && (err != nil || got.Queue != want) {
			t.Fatalf("by id: got %v, %v, want %v", got.Queue, err, want)
		}
		if same > 1 && txn.CodeOf(err) != txn.CodeInvalidRequest {
			t.Fatalf("by an id of %d brokers: got %v, want a refusal", same, err)
		}
	})
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	queues := onBroker("broker-a", 8)
	in := txn.SelectorInput{ShardKey: "customer-0001", Arg: json.RawMessage("3"), Header: func(string) string { return "canary" }}
	for _, name := range []string{TypeHash, TypeJavaHash, TypeConsistent, TypeRoundRobin, TypeQueue, TypeLanes} {
		s := mustNew(t, name)
		got := testing.AllocsPerRun(100, func() {
			if _, err := s.Select(queues, in); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: got %.0f allocations per message, want 0", name, got)
		}
	}
}
