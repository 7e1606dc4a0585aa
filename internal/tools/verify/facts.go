package verify

// fact has the observations of one transaction: requests and answers, and later its row and its messages. It is small
// because there are millions.
type fact struct {
	messageID uint64 // hash of the first one in an answer "committed"
	content   uint64 // of the first such answer, or of the first rejection
	key       uint64 // hash of the first message's id
	offset    int64  // of the first message, in its queue
	line      int64  // of the row
	sent      uint32 // clock of the first request
	committed uint32 // clock of the first answer "committed"; 0: none
	flags     flags
	queue     uint16 // that answers named; index
	seen      uint16 // that the first message was in; index
	copies    uint8
	open      uint8 // requests without an answer
	did       uint8 // answers that say that the request itself has committed
	perhaps   uint8 // answers, or none, that leave open whether the request has committed
}

// flags are observations of a transaction.
type flags uint32

const (
	saidCommitted flags = 1 << iota
	saidDelivered
	saidRejected
	saidUnknown
	saidRefused // the load itself is wrong
	saidMismatch
	saidMalformed
	otherExecuted // the other request was not refused
	otherRefused
	goneAfterCommit // a GET did not find a transaction that an earlier answer called committed
	differentAnswer
	differentQueue
	differentMessage
	rowSeen
	rowCommitted
	rowRejected
	rowAbandoned
	rowPending
	rowUnknown   // "unknown" stands for the row
	askedUnknown // GET says "unknown", at the very end
	askedGone    // GET says that it never committed, at the very end
	rowDiffers   // from an answer
	hasLine
	changed // the business change is there
	wrongQueue
	wrongContent
	leftUndecided // the load gave up on it, or left it on purpose
)

func (f flags) has(all flags) bool { return f&all == all }
func (f flags) any(of flags) bool  { return f&of != 0 }

func addSaturated(n *uint8) {
	if *n < 255 {
		*n++
	}
}

// facts has all transactions by number. It grows by blocks, so that nothing is copied.
type facts struct {
	blocks []*[factsPerBlock]fact // nil: none of them is known
	count  uint32                 // one more than the highest number
}

const factsPerBlock = 1 << 12

// at returns the fact of n, and makes it when it is new.
func (f *facts) at(n uint32) *fact {
	block := int(n / factsPerBlock)
	for block >= len(f.blocks) {
		f.blocks = append(f.blocks, nil)
	}
	if f.blocks[block] == nil {
		f.blocks[block] = new([factsPerBlock]fact)
	}
	f.count = max(f.count, n+1)
	return &f.blocks[block][n%factsPerBlock]
}

// each calls handle for all known transactions, in order.
func (f *facts) each(handle func(n uint32, f *fact)) {
	for i, block := range f.blocks {
		if block == nil {
			continue
		}
		for k := range block {
			if one := &block[k]; one.sent != 0 || one.flags.any(rowSeen|changed) || one.copies > 0 {
				handle(uint32(i*factsPerBlock+k), one)
			}
		}
	}
}

// request notes a request that is about to be sent. clock counts requests and answers in their order.
func (f *fact) request(purpose Purpose, clock uint32) {
	if purpose != Post {
		return
	}
	if f.sent == 0 {
		f.sent = clock
	}
	addSaturated(&f.open)
}

// answer notes the answer to a request that was sent at that clock. docs/verify.md has the same table for people.
func (f *fact) answer(a *Answer, queue uint16, clock, sent uint32) {
	if a.Purpose == Post && f.open > 0 {
		f.open--
	}
	if a.Purpose == Other {
		f.other(a)
		return
	}
	switch a.Class {
	case Committed:
		f.saysCommitted(a, queue, clock)
	case Rejected:
		f.says(saidRejected, a.Content)
	case Mismatch:
		f.flags |= saidMismatch
	case Unknown:
		f.flags |= saidUnknown
	case Refused:
		f.flags |= saidRefused
	case Malformed:
		f.flags |= saidMalformed
	case NotFound, Abandoned:
		if f.committed != 0 && f.committed < sent {
			f.flags |= goneAfterCommit
		}
	default:
	}
	if a.Purpose == Post && mayHaveCommitted(a.Class) {
		addSaturated(&f.perhaps)
	}
}

// mayHaveCommitted reports whether the answer leaves open if its request has committed: the service did not know, or
// its answer did not arrive.
func mayHaveCommitted(c Class) bool {
	switch c {
	case Unknown, Prepared, Conflict, Internal, OtherStatus, Broken, TimedOut, HungUp, Malformed:
		return true
	default:
		return false
	}
}

func (f *fact) saysCommitted(a *Answer, queue uint16, clock uint32) {
	message := hashOf(string(a.MessageID[:]))
	if f.flags.has(saidCommitted) {
		if f.queue != queue {
			f.flags |= differentQueue
		}
		if f.messageID != message {
			f.flags |= differentMessage
		}
	} else {
		f.queue, f.messageID, f.committed = queue, message, clock
	}
	f.says(saidCommitted, a.Content)
	if a.Delivered {
		f.flags |= saidDelivered
	}
	if a.Purpose == Post && !a.Replayed {
		addSaturated(&f.did)
	}
}

// says stores the content of the first final answer, and notes when another answer differs.
func (f *fact) says(what flags, content uint64) {
	const final = saidCommitted | saidRejected
	if f.flags.any(final) && f.content != content {
		f.flags |= differentAnswer
	}
	if !f.flags.any(final) {
		f.content = content
	}
	f.flags |= what
}

// other notes the answer to another request with the id. That request is sent once the first is decided.
func (f *fact) other(a *Answer) {
	switch a.Class {
	case Mismatch:
		f.flags |= otherRefused
	case Committed, Rejected, Prepared, Unknown:
		f.flags |= otherExecuted
	case Malformed:
		f.flags |= saidMalformed
	default:
	}
}
