// Package messages sends messages that belong to no transaction: one or a batch, at once or delayed, waiting for the
// broker's answer, in the background, or one-way. They go to the queue that the same selector picks for a transaction of
// the same topic and key. It imports package txn, whose words and rules it shares; broker and router are reached through
// small interfaces.
//
// What is known of a message afterwards is what its mode promises: sync tells how the broker stored it, or that it may be
// stored (txn.CodeUnconfirmed); async keeps it in memory until the broker has answered, in order for each queue, and tells
// the outcome to metrics and log; oneway hands it to the connection and never learns more. No message is sent twice unless
// the first was certainly not sent.
package messages
