package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/tools/verify"
)

// tables makes a table for each kind in SQL, so that the suite can make one of them slow.
func tables() string {
	var b strings.Builder
	for _, k := range kinds {
		if k.table != "" {
			fmt.Fprintf(&b, "CREATE TABLE public.%s (id text PRIMARY KEY, shard_key text NOT NULL, n bigint NOT NULL CHECK (n >= 0));\n", k.table)
		}
	}
	return b.String()
}

// kind is one kind of the load.
type kind struct {
	name   string
	topic  string
	table  string // of a kind in SQL; empty: the shipped handler
	more   string // further lines of its configuration
	weight int
}

// scratchTopic is for the suite's own messages. Only the binary's configuration names the topics of the kinds.
const scratchTopic = "faults-scratch"

// kinds of the load: one of each sort. The slow one is slow when its table is locked; see slowLocal.
var kinds = []kind{
	{name: "order.create", topic: "faults-orders", weight: 40},
	{name: "half", topic: "faults-half", table: "faults_half", weight: 60},
	{name: "ordered", topic: "faults-ordered", table: "faults_ordered", more: "ordered: true", weight: 30},
	{name: "fallback", topic: "faults-fallback", table: "faults_fallback", more: "fallback: outbox", weight: 20},
	{name: "fallback.ordered", topic: "faults-fallback-ordered", table: "faults_fallback_ordered", more: "fallback: outbox\nordered: true", weight: 10},
	{name: "outbox", topic: "faults-outbox", table: "faults_outbox", more: "delivery: outbox", weight: 20},
	{name: "outbox.ordered", topic: "faults-outbox-ordered", table: "faults_outbox_ordered", more: "delivery: outbox\nordered: true", weight: 19},
	{name: "slow", topic: "faults-slow", table: "faults_slow", more: "timeout: 30s", weight: 1},
}

func topics() []string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.topic)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// configuration is the YAML of the kinds.
func configuration() string {
	var b strings.Builder
	b.WriteString("kinds:\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %s:\n    topic: %s\n", k.name, k.topic)
		if k.table == "" {
			b.WriteString("    path: /v1/orders\n    tag: created\n    local: {handler: orders}\n")
		} else {
			// The transactions take a while, so that a fault always strikes some between half message and end.
			fmt.Fprintf(&b, "    local:\n      sql: |\n        SELECT pg_sleep(0.04 * random());\n        INSERT INTO public.%s (id, shard_key, n)\n"+
				"        VALUES (@id, @shard_key, (@payload->>'n')::bigint) RETURNING n\n", k.table)
		}
		for line := range strings.Lines(k.more) {
			b.WriteString("    " + strings.TrimSpace(line) + "\n")
		}
	}
	return b.String()
}

// loads has the payloads for the kinds. The tables refuse negative numbers.
func loads() []verify.KindLoad {
	var list []verify.KindLoad
	for _, k := range kinds {
		l := verify.KindLoad{Name: k.name, Weight: k.weight, Ordered: strings.Contains(k.more, "ordered: true")}
		if k.table != "" {
			l.Payload, l.Rejected = `{"n": {{n}}, "pad": "{{pad:100}}"}`, `{"n": -{{n}}1}`
		}
		list = append(list, l)
	}
	return list
}
