// Package broker is RocketMQ in memory, as it was measured on real brokers: half messages, END_TRANSACTION that is executed as
// often as it comes, check-backs about copies with coordinates of their own, an index that follows the log, requests that are
// executed late, and replies that are lost.
//
// Cluster is what outlives a process of the service; Client is one process's connection.
package broker
