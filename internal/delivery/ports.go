package delivery

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Store is what deliveries need of PostgreSQL.
type Store interface {
	// OwnHalf says whether a half message is of this database: of one of the processes that work on it, or named by a row.
	OwnHalf(ctx context.Context, id, uniqKey string) (bool, error)
	// Decide says what a half message is to be told, fencing it when no attempt with its id was decided.
	Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Verdict, *txn.Transaction, error)
	// ClaimDue leases rows of the given brokers that have a half message and no line to stand in, and that nobody works on.
	ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error)
	// ClaimOne leases the row of the half message, unless somebody works on it or on one before it.
	ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error)
	// Groups returns what the relay finds pending.
	Groups(ctx context.Context) ([]txn.Group, error)
	// ClaimOutbox leases rows without a half message that stand in no line, longest waiting first.
	ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error)
	// DueLines looks at up to limit lines after one, and returns those whose head is due and the last it has looked at.
	DueLines(ctx context.Context, topic, after string, brokers []string, limit int) (due []string, last string, err error)
	// ClaimLines leases the heads of lines with those behind them, up to limit each. They come line by line, in order.
	ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error)
	// Defer gives a lease back of which nothing is under way, and keeps others from it for a while.
	Defer(ctx context.Context, lease txn.Lease, wait time.Duration, reason string) error
	// GiveBack is Defer for leases of which nothing was sent: they do not count as attempts.
	GiveBack(ctx context.Context, leases []txn.Lease, wait time.Duration, reason string) error
	// Park is Defer until an operator asks for another attempt.
	Park(ctx context.Context, lease txn.Lease, reason string) error
	// Reroute gives a row another queue and UNIQ_KEY, and the lease back: from now on it has no half message. It is false when
	// the lease was lost.
	Reroute(ctx context.Context, lease txn.Lease, route txn.Route, uniqKey, reason string) (bool, error)
	MarkDelivered(id string, at time.Time, ordered bool)
	// MarkAll is MarkDelivered for many, and returns when the table says so.
	MarkAll(ctx context.Context, ids []string, at time.Time) error
	// FlushMarks returns when all marks are in the table.
	FlushMarks(ctx context.Context) error
	// Pending counts what is not known to be visible.
	Pending(ctx context.Context) (txn.Pending, error)
	// NoteWaiting writes why messages for the broker wait into up to limit pending rows that do not say, and are not put aside.
	NoteWaiting(ctx context.Context, broker, reason string, limit int) error
	// Notify wakes all replicas that listen, this one among them.
	Notify(ctx context.Context) error
	// Listen calls woken when a replica notified, and whenever it may have missed that, until ctx is done.
	Listen(ctx context.Context, woken func())
}

// Broker is what deliveries need of RocketMQ. Errors are as for txn.Broker.
type Broker interface {
	End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error
	// Send sends the message as a normal one, with its UNIQ_KEY, to its queue. The frame is not written after writeBefore.
	Send(ctx context.Context, m txn.Message, writeBefore time.Time) error
	// SendBatch is Send for several messages of one topic and queue: they become visible in their order, all or none.
	SendBatch(ctx context.Context, messages []txn.Message, writeBefore time.Time) error
	// Size is what a message takes of a batch, in bytes.
	Size(m txn.Message) int
	// Visible counts the messages with m's UNIQ_KEY in m's queue, stored since then. Its half message was stored first at the
	// commit-log offset; -1: it has none. indexed says that the broker's index is known to tell; otherwise the queue is read.
	Visible(ctx context.Context, m txn.Message, first int64, since time.Time, indexed bool) (int, error)
	// Probe returns when the broker has answered a request that was sent after the call began.
	Probe(ctx context.Context, broker string) error
	// SendHalf stores a half message; see txn.Broker.
	SendHalf(ctx context.Context, m txn.Message) (txn.Half, error)
	// NewUniqKey returns a fresh UNIQ_KEY.
	NewUniqKey() string
	// Reach says how far what the broker writes behind its log has come with a half message, also one that was ended. Errors
	// wrap txn.ErrNotTold when the broker answered and did not tell.
	Reach(ctx context.Context, h txn.Half) (txn.Reach, error)
	// Stores is false while a broker is known not to store what it is sent, or not as safely as it was told to.
	Stores(broker string) bool
	// Brokers returns the names of the masters that are known.
	Brokers() []string
}
