package selector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// manyLanes has 50 lanes with an exact and a prefix rule each, over 64 queues.
func manyLanes(by, within string) Spec {
	spec := &Lanes{By: by, Within: Spec{Type: within}}
	for i := range 50 {
		name := fmt.Sprintf("tenant-%02d", i)
		spec.Lanes = append(spec.Lanes, Lane{Name: name, Queues: ids(i, i+1, i+2), Match: []string{name, name + "-*"}})
	}
	spec.Lanes = append(spec.Lanes, Lane{Name: "canary", Queues: ids(0, 1), Share: 5}, Lane{Name: "default", Queues: ids(60, 61, 62, 63)})
	return Spec{Type: TypeLanes, Lanes: spec}
}

func BenchmarkSelect(b *testing.B) {
	const key = "customer-0000012345"
	header := func(string) string { return "tenant-07-eu" }
	payload := json.RawMessage(`{"order_id":"o-4711","customer":{"id":"c-7","tags":["a","b"],"tenant":"tenant-07-eu"},"amount_minor":1250}`)
	large := json.RawMessage(`{"blob":"` + strings.Repeat("x", 64<<10) + `",` + string(payload[1:]))
	for _, bb := range []struct {
		name   string
		spec   Spec
		queues int
		in     txn.SelectorInput
	}{
		{"hash", Spec{Type: TypeHash}, 8, txn.SelectorInput{ShardKey: key}},
		{"hash-255", Spec{Type: TypeHash}, 8, txn.SelectorInput{ShardKey: strings.Repeat("k", 255)}},
		{"java_hash", Spec{Type: TypeJavaHash}, 8, txn.SelectorInput{ShardKey: key}},
		{"java_hash-unicode", Spec{Type: TypeJavaHash}, 8, txn.SelectorInput{ShardKey: "kündin-東京-🚚-0000012345"}},
		{"consistent-8-queues", Spec{Type: TypeConsistent}, 8, txn.SelectorInput{ShardKey: key}},
		{"consistent-64-queues", Spec{Type: TypeConsistent}, 64, txn.SelectorInput{ShardKey: key}},
		{"consistent-256-queues", Spec{Type: TypeConsistent}, 256, txn.SelectorInput{ShardKey: key}},
		{"queue-id", Spec{Type: TypeQueue}, 8, txn.SelectorInput{Arg: json.RawMessage("3")}},
		{"queue-broker-id", Spec{Type: TypeQueue}, 8, txn.SelectorInput{Arg: json.RawMessage(`{"broker":"broker-a","id":3}`)}},
		{"round_robin", Spec{Type: TypeRoundRobin}, 8, txn.SelectorInput{}},
		{"lanes-header", manyLanes("header:X-Tenant", TypeHash), 64, txn.SelectorInput{ShardKey: key, Header: header}},
		{"lanes-share-default", manyLanes("header:X-Tenant", TypeHash), 64, txn.SelectorInput{ShardKey: key}},
		{"lanes-selector_arg", manyLanes("selector_arg", TypeHash), 64, txn.SelectorInput{ShardKey: key, Arg: json.RawMessage(`"tenant-07-eu"`)}},
		{"lanes-arg-object", manyLanes("selector_arg", TypeQueue), 64, txn.SelectorInput{ShardKey: key, Arg: json.RawMessage(`{"lane":"tenant-07-eu","arg":8}`)}},
		{"lanes-payload", manyLanes("payload:/customer/tenant", TypeHash), 64, txn.SelectorInput{ShardKey: key, Payload: payload}},
		{"lanes-payload-64KiB", manyLanes("payload:/customer/tenant", TypeHash), 64, txn.SelectorInput{ShardKey: key, Payload: large}},
		{"lanes-consistent", manyLanes("header:X-Tenant", TypeConsistent), 64, txn.SelectorInput{ShardKey: key, Header: header}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := mustMake(b, bb.spec)
			queues := onBroker("broker-a", bb.queues)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Select(queues, bb.in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
