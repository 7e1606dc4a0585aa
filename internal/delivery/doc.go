// Package delivery finishes what a request could not: it answers check-backs, finds out outcomes that are not known, and
// makes committed messages visible that nobody has confirmed. It imports only txn.
//
// All of it goes one way. A row is claimed with a lease, so that one process at a time acts for it. Then evidence is
// awaited that nothing an earlier holder sent can still be executed, and that the broker's index has what was (see
// evidence). Then the broker is asked whether the message is visible. Only if it is not, the half message is ended, or its
// stored body is sent when the broker no longer has the half message.
package delivery
