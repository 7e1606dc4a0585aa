// Package rocketmq is the RocketMQ side: routes, half messages and their ends, normal sends, the index, and check-backs,
// in the words of package txn. It imports only txn and the package remoting beneath it, which is the wire.
//
// Half messages have two transports: native, which is remoting, and library, which is rocketmq-client-go. Everything
// that coordinates (END_TRANSACTION with its reply, check-backs, the index query) always goes through remoting, since no
// public client offers it.
package rocketmq
