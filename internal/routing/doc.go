// Package routing keeps one view of every topic's queues, and routes every message by it, with a transaction or without.
// It imports txn only.
//
// Two lists count. The live one is what name servers say now: queues that can be written and are read, of brokers that have a master;
// it is the same in every replica as soon as each has asked again. The accepted one is kept in the database, is the same
// in every replica that reads it, and changes only when an operator accepts another. Selectors with on_change: remap
// choose from the live list, those with refuse from the accepted one; a queue of it that is not live is refused, and the
// keys of the others go on.
package routing
