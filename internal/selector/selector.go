// Package selector chooses the queue of a message from a sorted list of queues that is the same in every replica. All
// selectors but round_robin are pure functions of that list and the request.
//
// A selector that cannot choose says why in a *txn.Error; it never falls back to another queue.
//
// Selectors remember their results for a list of queues. They recognize a list by its slice, so callers must not change
// a list afterwards; another list has to be another slice.
//
// A user's own type of selector is a [Factory] in a [Registry]: a configuration can then name it as a type, and within lanes. Users
// reach it through the module's root package.
package selector

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/txn"
)

// The types of selectors that New makes.
const (
	TypeHash       = "hash"        // FNV-1a 64 of the shard key, modulo the number of queues
	TypeJavaHash   = "java_hash"   // the queue that the Java client's SelectMessageQueueByHash picks for the shard key
	TypeConsistent = "consistent"  // the queue with the highest score for the shard key: few keys move when queues do
	TypeQueue      = "queue"       // the queue that selector_arg names
	TypeLanes      = "lanes"       // a named set of queues, then another selector within it
	TypeRoundRobin = "round_robin" // one after the other, whatever the key
)

// Default is the type used where the configuration names none.
const Default = TypeHash

// Spec is the configuration of a topic's or a kind's selector.
type Spec struct {
	Type     string       // empty: Default
	OnChange txn.OnChange // empty: not given
	Lanes    *Lanes       // of TypeLanes
	Options  Decode       // of a user's own type; nil: none were given
}

// Registry has the types of selectors that a configuration can name: the shipped ones, and a user's own. The zero Registry has the
// shipped ones only.
type Registry struct{ types map[string]selectorType }

// selectorType makes selectors of one type.
type selectorType struct {
	// build makes a selector that is within depth lanes.
	build func(r Registry, spec Spec, depth int) (txn.Selector, []*OptionError)
	own   bool // a user's own, which reads its options by itself
}

// simple is a shipped type without options.
func simple(new func() txn.Selector) selectorType {
	return selectorType{build: func(Registry, Spec, int) (txn.Selector, []*OptionError) { return new(), nil }}
}

// shipped returns a new Registry of the shipped types.
func shipped() Registry {
	return Registry{map[string]selectorType{
		TypeHash: simple(func() txn.Selector { return &hash{reasons: reasons{format: "fnv1a64(shard_key) mod %d = %d"}} }),
		TypeJavaHash: simple(func() txn.Selector {
			return &javaHash{reasons: reasons{format: "abs(hashCode(shard_key) mod %d) = %d"}}
		}),
		TypeConsistent: simple(func() txn.Selector {
			return &consistent{reasons: reasons{format: "rendezvous(shard_key) of %d = %d"}}
		}),
		TypeQueue:      simple(func() txn.Selector { return named{} }),
		TypeRoundRobin: simple(newRoundRobin),
		TypeLanes:      {build: buildLanes},
	}}
}

// New returns the selector of the spec, of the shipped types; see Registry.New.
func New(spec Spec) (txn.Selector, error) { return Registry{}.New(spec) }

// New returns the selector of the spec. Selectors are safe for concurrent use. One that belongs to one topic allocates
// next to nothing per message, because it remembers its results for a list of queues. An error has all mistakes of the
// spec; see OptionErrors.
func (r Registry) New(spec Spec) (txn.Selector, error) {
	s, wrong := r.orShipped().build(spec, 0)
	switch spec.OnChange {
	case "", txn.OnChangeRemap, txn.OnChangeRefuse:
	default:
		wrong = append(wrong, OptionErrorf("/on_change", "must be %s or %s", txn.OnChangeRemap, txn.OnChangeRefuse))
	}
	if len(wrong) > 0 {
		return nil, join(wrong)
	}
	return s, nil
}

func (r Registry) build(spec Spec, depth int) (txn.Selector, []*OptionError) {
	name := cmp.Or(spec.Type, Default)
	t, ok := r.types[name]
	if !ok {
		return nil, []*OptionError{OptionErrorf("/type", "selector type %q is unknown; there are %s", name, strings.Join(r.Types(), ", "))}
	}
	return t.build(r, spec, depth)
}

// Types returns the names of all types, sorted.
func (r Registry) Types() []string { return slices.Sorted(maps.Keys(r.orShipped().types)) }

// Has reports whether there is a type of this name, and whether it is a user's own.
func (r Registry) Has(name string) (known, own bool) {
	t, ok := r.orShipped().types[name]
	return ok, t.own
}

func (r Registry) orShipped() Registry {
	if r.types == nil {
		return shipped()
	}
	return r
}

// OptionError is one mistake in the options of a selector. A configuration's reader adds line and column.
type OptionError struct {
	Pointer string // RFC 6901, from the selector's mapping; empty for the whole
	Err     error
}

// Error returns the pointer and what is wrong there.
func (e *OptionError) Error() string {
	if e.Pointer == "" {
		return e.Err.Error()
	}
	return e.Pointer + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *OptionError) Unwrap() error { return e.Err }

// OptionErrors returns every mistake that an error of New or of a Factory holds.
func OptionErrors(err error) []*OptionError {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one
		var list []*OptionError
		for _, one := range many.Unwrap() {
			list = append(list, OptionErrors(one)...)
		}
		return list
	}
	if one, ok := errors.AsType[*OptionError](err); ok {
		return []*OptionError{one}
	}
	return []*OptionError{{Err: err}}
}

// join makes one error of mistakes.
func join(wrong []*OptionError) error {
	list := make([]error, len(wrong))
	for i, e := range wrong {
		list[i] = e
	}
	return errors.Join(list...)
}

// beneath puts a prefix before the pointers of mistakes.
func beneath(prefix string, wrong []*OptionError) []*OptionError {
	list := make([]*OptionError, len(wrong))
	for i, e := range wrong {
		list[i] = &OptionError{prefix + e.Pointer, e.Err}
	}
	return list
}

// noQueue answers a topic without any usable queue. Callers give at least one; this keeps a modulo from panicking.
func noQueue() error {
	return txn.Errorf(txn.CodeBrokerUnavailable, "the topic has no usable queue")
}
