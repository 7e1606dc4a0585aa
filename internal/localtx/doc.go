// Package localtx runs the local transactions of kinds, each together with its row, and says what became of them.
//
// The code of a kind and the input of an attempt make the task of a run (package task). A task whose statements are known
// beforehand goes to the server in one round trip: BEGIN, the statements of the kind, the row, COMMIT (pipeline). A Go
// handler that talks to the database takes as many round trips as it needs (steps). Either way the row comes last, with the
// result, and is written once. Its primary key lets one attempt with an id commit, and none whose half message is fenced. Who
// loses has done all its work in vain, which is rare; and what fails before it meets the row looks for the row afterwards.
package localtx
