// Package faults is the fault suite: it runs replicas of the real service on a real PostgreSQL and two real brokers, puts
// load on them, breaks one thing after the other, up to three at once, and counts what a consumer sees. The counting is
// done by package verify; the faults, and the plan that draws them from a seed, are made here. It imports devstack, verify,
// migrations and the wire client.
//
// # World
//
// Each replica reaches each server (brokers, name server, PostgreSQL) through a proxy of its own inside of this process, so
// that a network can be broken for one replica and one server. A proxy never passes on late what it has acknowledged,
// but for the delay that is asked of it: what it cannot write within a second it throws away, with the connection. That is
// the line between what is promised and what docs/guarantees.md says no client of this broker can do; the other side of
// the line has a test in internal/tools/e2e.
//
// # Plan
//
// A plan is a function of its options. Each fault has what it draws from (target, length, point) and the parts of the world
// that it holds for itself; three lanes take faults off the round's list, so that what does not touch the same part
// overlaps. Times are as they come: a machine does not repeat itself, but the faults, their order and their parameters do.
package faults
