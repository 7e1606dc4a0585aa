// Package messages sends messages that belong to no transaction, one or a batch, at once or delayed. The selector that picks
// their queue is the one that transactions of the topic have. The package shares the words and rules of txn, and reaches broker and router through
// small interfaces.
//
// A mode promises how much its client learns. sync waits for the broker's answer and returns it, or says that the message may
// be stored (txn.CodeUnconfirmed). async holds the message in memory until the broker has answered, in order for each queue,
// and reports the outcome in metrics and log. oneway hands the message to the connection and learns nothing more. No message
// is sent again unless the first one was certainly not sent.
package messages
