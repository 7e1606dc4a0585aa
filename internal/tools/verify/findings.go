package verify

import (
	"cmp"
	"slices"
)

// The classes of violations, by the names in reports. The names are stable.
const (
	Lost         = "lost"          // committed, and not visible
	Doubled      = "doubled"       // visible more than once; the extra copies count
	Ghost        = "ghost"         // visible, and not committed
	WrongQueue   = "wrong_queue"   // visible in another queue or topic than row and answers say
	WrongContent = "wrong_content" // body, tag, keys, shard key, kind or property are not what was sent
	HalfDone     = "half_done"     // the row is committed and its business change is not there, or the other way round
	Inversion    = "inversion"     // of an ordered kind: visible in another order than committed
	Unsent       = "unsent"        // committed or visible with an id of this run that was never sent

	FalseCommitted     = "committed_without_row"           // said committed; the row is not
	FalseDiffers       = "answer_differs_from_row"         // queue, message id, result or times of answer and row differ
	FalseRejected      = "rejected_but_committed"          // said 422 rejected; the row is committed
	FalseNotKept       = "rejection_not_kept"              // said 422 rejected; no row says so
	FalseNothing       = "nothing_changed_but_committed"   // every request of the id said that it has changed nothing; the row is committed
	FalseDelivered     = "delivered_not_visible"           // said delivered; no message is visible
	FalseContradiction = "contradiction"                   // two answers about one id differ
	FalseTwice         = "executed_twice"                  // two answers each say that their own request has committed
	FalseGone          = "not_found_after_committed"       // GET did not find a transaction that an earlier answer called committed
	FalseOther         = "other_request_accepted"          // another request with the id was not refused
	FalseMismatch      = "mismatch_without_other_request"  // said 422 mismatch to the first request of an id
	FalseUnknown       = "unknown_unresolved"              // 202, and still unknown after everything has settled
	FalseNotRejected   = "committed_though_to_be_rejected" // a request that the local transaction has to refuse was committed
	FalseMalformed     = "malformed_answer"                // not an answer of the contract
)

// violationClasses in the order of the report; the false answers come last.
var violationClasses = []string{Lost, Doubled, Ghost, HalfDone, WrongQueue, WrongContent, Inversion, Unsent}

var falseClasses = []string{
	FalseCommitted, FalseDiffers, FalseRejected, FalseNotKept, FalseNothing, FalseDelivered, FalseContradiction, FalseTwice, FalseGone,
	FalseOther, FalseMismatch, FalseUnknown, FalseNotRejected, FalseMalformed,
}

// Finding is one violation, about one transaction.
type Finding struct {
	Class  string `json:"class"`
	ID     string `json:"id"`
	Detail string `json:"detail"`
	// History has the requests and answers about the id, in order.
	History []string `json:"history"`

	n uint32
}

// shownPerClass bounds the examples of each class in a report. All violations are counted.
const shownPerClass = 10

// findings counts violations and has the first examples of each class.
type findings struct {
	counts map[string]uint64
	shown  map[string][]Finding
}

func newFindings() *findings {
	return &findings{counts: make(map[string]uint64), shown: make(map[string][]Finding)}
}

func (f *findings) add(class string, count uint64, n uint32, id, detail string) {
	f.counts[class] += count
	if len(f.shown[class]) < shownPerClass {
		f.shown[class] = append(f.shown[class], Finding{Class: class, ID: id, Detail: detail, n: n})
	}
}

func (f *findings) list() []Finding {
	all := []Finding{}
	for _, class := range slices.Concat(violationClasses, falseClasses) {
		shown := f.shown[class]
		slices.SortFunc(shown, func(a, b Finding) int { return cmp.Compare(a.n, b.n) })
		all = append(all, shown...)
	}
	return all
}

func (f *findings) total() (sum uint64) {
	for _, n := range f.counts {
		sum += n
	}
	return sum
}

func (f *findings) falseAnswers() (sum uint64) {
	for _, class := range falseClasses {
		sum += f.counts[class]
	}
	return sum
}
