// Package rocketmq is the adapter of RocketMQ: routes, half messages and their ends, normal messages, the index, and
// check-backs, in the words of package txn. Beneath it, remoting is the wire. All errors of requests to brokers become a
// txn.SendError here, in errors.go, and nowhere else.
//
// Half messages have two transports: native (remoting) and library (rocketmq-client-go). All coordination (END_TRANSACTION with
// its reply, check-backs, the index query) goes through remoting, because no public client offers it.
package rocketmq
