// Package remoting speaks RocketMQ's remoting protocol: frames, one multiplexed
// connection per broker, and the requests that transactional messages need
// (half messages, END_TRANSACTION, heartbeats, check-backs, the index query,
// routes). It knows nothing of the service's transactions.
//
// Its promises, on which callers build:
//
//   - A call that fails tells whether its request can still be executed:
//     [ErrNotSent] means that the broker has not got it and never will,
//     [ErrReplyMissing] that it may have got it. A [BrokerError] is an answer.
//   - A request with WriteBefore is never handed to the socket after that time.
//   - Cancelling a context abandons the wait for the reply, nothing else: a
//     connection that many callers share is never harmed by one of them.
//   - Every master broker is connected, and told our producer group, from
//     Start on and again right after each reconnect, so check-backs come even
//     when nothing is sent.
//
// Facts come from Apache RocketMQ (remoting/protocol/RemotingCommand,
// RocketMQSerializable, common/message/MessageDecoder, the broker's processors)
// and were exercised against a 5.4.0 broker.
package remoting
