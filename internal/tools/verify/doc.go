// Package verify proves, from the outside, that a running stack kept what docs/guarantees.md promises: it drives load over
// HTTP, keeps a journal of every answer, then reads the database's rows and the topics' messages, and compares the three.
//
// It is a checker, so it shares no code with what it checks but the wire client (rocketmq/remoting, of which it uses
// reading only): it has its own SQL, its own reading of answers, and its own idea of what each answer claims (see
// docs/verify.md). Beside the wire client it imports
// pgurl, which reads database URLs.
//
// A run has three steps, which a program can take with other things (faults) happening beside them:
//
//	run, err := verify.Start(ctx, stack, load, options) // looks at the stack, notes where the topics end
//	err = run.Load(ctx)                                 // until count, duration or ctx ends
//	report, err := run.Check(ctx)                       // waits until all is settled, reads, compares
//
// What was sent is a function of the seed and a transaction's number, and is computed again where it is compared; only
// what was observed is kept: some 60 bytes per transaction in memory, and each answer in the journal, a file. Open takes a
// journal of an earlier run, to check it once more.
package verify
