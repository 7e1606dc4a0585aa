// Package localtx runs the local transactions of kinds, each together with its row, and says what became of them.
//
// The code of a kind and the input of an attempt make the task of a run (package task). A task whose statements are known
// beforehand goes to the server in one round trip: BEGIN, the row, the statements of the kind, COMMIT (pipeline). A Go
// handler that talks to the database takes as many round trips as it needs (steps). Either way the row comes first, so that
// its primary key lets attempts with one id, and the fence of a check-back, wait for each other.
package localtx
