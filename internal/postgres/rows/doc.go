// Package rows reads and writes the rows of transactions: the row of an attempt, the fence that makes a rollback final, the
// delivered marks, and the look at the rows before one in its line.
//
// A row exists if and only if the business change of its transaction does; an abandoned row is a fence and says that no
// attempt with its id was decided.
package rows
