package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one kind of fault.
type fault struct {
	name  string
	about string
	root  bool // it needs root, and Linux
	draw  func(r *rand.Rand) event
}

// event is one fault with its drawn parameters.
type event struct {
	fault  string
	detail string        // the parameters, for people
	holds  []string      // parts of the world that no other event may touch meanwhile
	length time.Duration // about how long it takes, for the plan
	// run injects the fault, holds it, and heals it, also when ctx ends meanwhile. proof describes an observation which
	// shows that the fault took place.
	run func(ctx context.Context, w *world) (proof string, err error)
}

// faults has all faults. A fault draws only from the plan's random numbers.
var faults = slices.Concat(replicaFaults, brokerFaults, halfFaults, databaseFaults, standbyFaults, networkFaults, rootFaults)

func faultNamed(name string) (fault, bool) {
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, false
	}
	return faults[i], true
}

// between draws a duration in whole tenths of a second.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return low + step*time.Duration(r.Int64N(int64((high-low)/step)+1))
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Parts of the world.
func partReplica(i int) string         { return fmt.Sprintf("replica-%d", i) }
func partBroker(i int) string          { return fmt.Sprintf("broker-%d", i) }
func partLink(i int, to string) string { return fmt.Sprintf("replica-%d to %s", i, to) }
func eachReplica(part func(i int) string) []string {
	var parts []string
	for i := range replicaCount {
		parts = append(parts, part(i))
	}
	return parts
}

const (
	partNameserver = "name server"
	partDatabase   = "database"
	partSlowTable  = "slow table"
)
