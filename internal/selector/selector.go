// Package selector chooses the queue of a message: pure functions over a sorted list of queues, the same in every
// replica. It imports txn only.
//
// A selector that cannot choose says why in a *txn.Error; it never falls back to another queue.
package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/txn"
)

// The types of selectors that New makes.
const (
	TypeHash       = "hash"        // FNV-1a 64 of the shard key, modulo the number of queues
	TypeJavaHash   = "java_hash"   // the queue that the Java client's SelectMessageQueueByHash picks for the shard key
	TypeQueue      = "queue"       // the queue that selector_arg names
	TypeRoundRobin = "round_robin" // one after the other, whatever the key
)

// Default is the type used where the configuration names none.
const Default = TypeHash

// makers has one entry per type that this version has.
var makers = map[string]func() txn.Selector{
	TypeHash: func() txn.Selector { return &hash{reasons: reasons{format: "fnv1a64(shard_key) mod %d = %d"}} },
	TypeJavaHash: func() txn.Selector {
		return &javaHash{reasons: reasons{format: "abs(hashCode(shard_key) mod %d) = %d"}}
	},
	TypeQueue:      func() txn.Selector { return named{} },
	TypeRoundRobin: newRoundRobin,
}

// later are the types of the contract that this version does not have.
var later = []string{"consistent", "lanes"}

// Spec says which selector a topic or a kind has.
type Spec struct {
	Type string
}

// New returns the selector of the spec; an empty type is the default. Selectors are safe for concurrent use. One that
// belongs to one topic allocates nothing per message: the texts of its reasons are kept for one number of queues.
func New(spec Spec) (txn.Selector, error) {
	name := spec.Type
	if name == "" {
		name = Default
	}
	if maker, ok := makers[name]; ok {
		return maker(), nil
	}
	if slices.Contains(later, name) {
		return nil, fmt.Errorf("selector type %s is not supported by this version", name)
	}
	return nil, fmt.Errorf("selector type %q is unknown; there are %s", name, strings.Join(Types(), ", "))
}

// Types returns the names of the types, sorted.
func Types() []string {
	names := make([]string, 0, len(makers))
	for name := range makers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// noQueue answers a topic without any writable queue. Callers give at least one; this keeps a modulo from panicking.
func noQueue() error {
	return txn.Errorf(txn.CodeBrokerUnavailable, "the topic has no writable queue")
}
