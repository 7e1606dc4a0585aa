// Package txn is the domain of txsvc: kinds, transactions, half messages, their states and errors, and the flow that
// makes one database transaction and one message a unit. It imports no other package of this module; the database,
// the broker and HTTP are reached through the small interfaces in ports.go.
//
// How far one attempt can come, and how it can end when a process dies. These are not the states of a transaction in
// answers and rows (State):
//
//	stateDiagram-v2
//	    [*] --> routed: selector picks a queue
//	    routed --> half: half message stored (SEND_OK)
//	    half --> committed: local transaction and row COMMIT
//	    half --> rejected: local transaction refused, row says so
//	    half --> failed: local transaction certainly not committed
//	    half --> unknown: outcome of COMMIT not known
//	    half --> fenced: died before the row; a check-back puts a fence on the half message
//	    unknown --> committed: the row is there
//	    unknown --> fenced: the row is not, and now never will be
//	    committed --> delivered: END_TRANSACTION answered, or the message found in its queue
//	    rejected --> [*]: half message rolled back
//	    failed --> [*]: half message rolled back
//	    fenced --> [*]: half message rolled back
//	    delivered --> [*]
//
// One row decides. It is written by the local transaction itself, so it exists if and only if the business change does,
// and it names the half message it belongs to. Everything else is read off that row.
package txn
