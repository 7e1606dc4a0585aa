// Package e2e holds the tests that use the service as its users do: the real binary as a process of its own, over HTTP,
// on a real PostgreSQL and a real RocketMQ, with what a consumer sees counted by reading the topic. It has no code of
// its own besides tests.
package e2e
