// Package model explores interleavings of the flow (internal/txn) and of the deliveries (internal/delivery). Both are the
// service's own code; the database and the brokers are fakes in memory, and time is that of testing/synctest. One seed makes
// one schedule: how many processes there are, what clients ask, when frames arrive, and what breaks. explore runs a schedule
// and reports each promise that did not hold. The real PostgreSQL and RocketMQ show that the fakes are right: see the tests of
// conformance.
package model
