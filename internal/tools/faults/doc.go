// Package faults is the fault suite. It runs replicas of the real service on a real PostgreSQL and two real brokers,
// puts load on them, breaks one thing after the other, up to three at once, and counts the messages that a consumer
// sees. Package verify counts; this package has the faults, and the plan that draws them from a seed.
//
// # World
//
// Each replica reaches each server (brokers, name server, PostgreSQL) through a proxy of its own in this process, so
// that a network can be broken for one replica and one server. A proxy never passes on late what it has acknowledged,
// except for the delay of the fault itself: it throws bytes away, with their connection, when it cannot write them
// within a second. The reason is in docs/guarantees.md: no client of this broker can do without that. A proxy that
// holds bytes back has a test in internal/tools/e2e.
//
// # Plan
//
// A plan is a function of its options. Each fault draws its parameters (target, length, point), and holds parts of the
// world for itself. Three lanes take faults off the round's list, so faults that hold different parts overlap. The
// faults, their order and their parameters repeat with the seed; exact times do not, because no machine repeats them.
package faults
