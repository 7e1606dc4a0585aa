// Package rows reads and writes the rows of transactions: what an attempt writes, what is read back, the fence that makes a
// rollback final, the delivered marks, and what is pending before a row of a line. It imports only txn, postgres and pause.
//
// A row exists if and only if the business change of its transaction does; an abandoned row is a fence and says that no
// attempt with its id was decided.
package rows
