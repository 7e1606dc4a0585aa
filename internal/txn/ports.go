package txn

import (
	"context"
	"time"
)

// Broker gives the flow what it needs from RocketMQ.
type Broker interface {
	// NewUniqKey returns a fresh UNIQ_KEY in RocketMQ's standard form.
	NewUniqKey() string
	// SendHalf stores one half message in m.Queue. Only SEND_OK is success: a half message that was stored with another
	// status is rolled back before the error is returned. Errors are *SendError.
	SendHalf(ctx context.Context, m Message) (Half, error)
	// End sends END_TRANSACTION for the named copy and waits for the broker's reply. nil means that the broker has
	// executed it. The frame is not written after writeBefore (zero: no bound). Errors are *SendError.
	End(ctx context.Context, h Half, d Decision, writeBefore time.Time) error
}

// Store gives the flow what it needs from PostgreSQL.
type Store interface {
	// Find returns the row, also an abandoned one, or ErrNotFound. A row whose COMMIT is not known to be as durable as
	// the database is configured to make it has StateUnknown; callers must not conclude anything from it.
	Find(ctx context.Context, id string) (*Transaction, error)
	// Run runs the local transaction of the attempt, with its row, and never returns before the outcome is known or known to
	// be unknown. It is not cancelled by ctx's cancellation: callers pass one that only carries values.
	Run(ctx context.Context, a *Attempt) Outcome
	// Begin notes that an attempt begins, and returns the time of its row, which no other attempt of this process has. When the
	// attempt has ended, Settle says that no message of it is pending, and HandOver that its row may have one that nobody
	// confirmed. Neither waits. Settle after HandOver has no effect.
	Begin() time.Time
	Settle(began time.Time)
	HandOver(began time.Time)
	// Renew extends the lease of a row that Run committed, if this process still holds it.
	Renew(ctx context.Context, lease Lease) (Lease, bool, error)
	// Release gives a lease back before its time: nothing of this holder is under way.
	Release(ctx context.Context, lease Lease) error
	// AwaitHead returns true when no earlier row of an ordered, committed one is pending any more, and false when it may take
	// longer, or when ctx is done.
	AwaitHead(ctx context.Context, t *Transaction) bool
	// MarkDelivered notes that the broker confirmed the message. It returns at once; the note is written in batches, and
	// Find and Run of this process see it at once. Marks of ordered rows do not wait for company: others wait for them.
	MarkDelivered(id string, at time.Time, ordered bool)
	// Redeliver lets a parked row be tried once more, and returns the row.
	Redeliver(ctx context.Context, id string) (*Transaction, error)
}

// Lease is the exclusive right to deliver one committed row. The row has its end, on the database's clock; the holder
// has to have written its END_TRANSACTION before WriteBefore, on its own monotonic clock, so that it is executed or
// dropped when the lease ends.
type Lease struct {
	ID          string
	Epoch       int64
	WriteBefore time.Time
}

// OutcomeKind is the kind of an outcome of a local transaction.
type OutcomeKind int

// The outcomes of Store.Run.
const (
	// OutcomeCommitted: row and business change are there. Transaction and Lease are set.
	OutcomeCommitted OutcomeKind = iota
	// OutcomeRejected: a business rule refused; the row says so. Transaction is set, with its Rejection.
	OutcomeRejected
	// OutcomeTaken: another attempt holds the id. Transaction is its row; nothing was done for this attempt.
	OutcomeTaken
	// OutcomeFailed: certainly not committed, and nothing is stored. Err is an *Error.
	OutcomeFailed
	// OutcomeUnknown: COMMIT may have happened. Err says what broke.
	OutcomeUnknown
)

// Outcome is what became of a local transaction.
type Outcome struct {
	Kind        OutcomeKind
	Transaction *Transaction
	Lease       Lease
	Head        bool // of an ordered row: no earlier one of its line was pending after the COMMIT
	Tracked     bool // this process keeps track of the message: see Store.HandOver
	Err         error
}

// Undecided takes over attempts whose outcome is not known, and finds it out.
type Undecided interface {
	// Add takes an attempt over. When its outcome is known, and it is forgotten, its method Decided is called.
	Add(a *Attempt)
	// Find returns an attempt with the id whose outcome is being found out, or nil.
	Find(id string) *Attempt
}

// Deliveries take over where a request ends.
type Deliveries interface {
	Undecided
	// Alive is false for a broker that is known not to answer now.
	Alive(broker string) bool
	// Takes says whether Relay can be expected to take rows of the place now.
	Takes(w Waiting) bool
	// Relay delivers a tracked row without a half message, which this process has just committed, and ends its attempt. When it
	// is false, it does nothing.
	Relay(c Claim) bool
	// Wake starts the delivery of a committed row soon. It returns at once.
	Wake(w Waiting)
	// WakeAll is Wake for all replicas. It also ends the back-off of the row's topic on its broker.
	WakeAll(w Waiting)
}

// Waiting names the place where a committed row waits to be delivered: the line of its topic and shard key when it is
// ordered, else its topic on its broker.
type Waiting struct {
	Topic    string
	Broker   string
	ShardKey string
	Ordered  bool
}

// Resolution is what one half message is to be told, by the row of its transaction.
type Resolution int

// The resolutions of a half message.
const (
	// ResolutionUndecided: its local transaction is still running, or an external participant has not decided. It is told
	// nothing, and the broker asks again.
	ResolutionUndecided Resolution = iota
	// ResolutionRollback: its local transaction can never commit. The row enforces that.
	ResolutionRollback
	// ResolutionCommit: its local transaction is committed, and its message is not known to be visible. Only the holder of the
	// row's lease may end it.
	ResolutionCommit
	// ResolutionDelivered: its message is visible already. It is rolled back, because it is a copy that is one too many.
	ResolutionDelivered
)

// Claim is a committed row whose message is not known to be visible, with the lease to deliver it.
type Claim struct {
	Lease     Lease
	Half      Half
	Message   Message
	Outbox    bool // there is no half message
	Tracked   bool // this process has just committed it and keeps track of it; nobody has sent it
	Ordered   bool
	Line      int64 // of an ordered row: its place
	First     int64 // commit-log offset of its half message as it was stored first; -1: it has none
	CreatedAt time.Time
	Attempts  int       // claims so far, this one included, without those that were given back because nothing was sent
	FreeSince time.Time // when the last holder's lease ended, on this process's clock, at the latest
}

// Pending counts the committed messages that are not known to be visible.
type Pending struct {
	Count  int64
	Parked int64         // of these: not tried again until an operator asks for it
	Oldest time.Duration // since it was committed; 0: there is none
}

// Group is what deliveries work on at a time: the outbox's rows of a broker and topic, or, without a broker,
// the lines of a topic.
type Group struct {
	Broker string
	Topic  string
}
