// Package routing has one view of each topic's queues, and routes every message by it, with a transaction or without.
//
// There are two lists. The live queues are those that name servers list now: queues that can be written and that
// consumers read, of brokers that have a master. All replicas see the same live queues as soon as each has asked again.
// The accepted queues are in the database, so all replicas have the same; they change only when an operator accepts
// others. Selectors with on_change: remap choose from the live queues, and those with refuse from the accepted ones.
// When such a selector chooses a queue that is not live, the message is refused; the keys of other queues go on.
package routing
