// Package verify proves, from outside, that a running stack kept the promises of docs/guarantees.md. It drives load
// over HTTP and writes each answer into a journal. Then it reads the database's rows and the topics' messages, and
// compares the three.
//
// It is a checker, so it must not repeat mistakes of the service. It has its own SQL, its own decoder of answers, and
// its own idea of the claims of each answer (see docs/verify.md). It shares no code with the service but the wire client and small packages without
// knowledge of transactions.
//
// A run has three steps. A program may do other things meanwhile, for example cause faults:
//
//	run, err := verify.Start(ctx, stack, load, options) // looks at the stack, notes where the topics end
//	err = run.Load(ctx)                                 // until count, duration or ctx ends
//	report, err := run.Check(ctx)                       // waits until all is settled, reads, compares
//
// Each request is a function of the seed and the transaction's number, so verify computes it again when it compares. It
// only stores observations: some 60 bytes per transaction in memory, and each answer in the journal, a file. Open reads
// the journal of an earlier run, to check it once more.
package verify
