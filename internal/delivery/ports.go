package delivery

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// Store is what deliveries need of PostgreSQL.
type Store interface {
	// Decide says what a half message is to be told, fencing it when no attempt with its id was decided.
	Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Verdict, *txn.Transaction, error)
	// ClaimDue leases rows of the given brokers that nobody works on.
	ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error)
	// ClaimOne leases the row of the half message, unless somebody works on it.
	ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error)
	// Defer gives a lease back of which nothing is under way, and keeps others from it for a while.
	Defer(ctx context.Context, lease txn.Lease, wait time.Duration, reason string) error
	MarkDelivered(id string, at time.Time)
	// Pending counts what is not known to be visible, and the age of the oldest in seconds.
	Pending(ctx context.Context) (count int64, oldest float64, err error)
}

// Broker is what deliveries need of RocketMQ. Errors are as for txn.Broker.
type Broker interface {
	End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error
	// Send sends the message as a normal one, with its UNIQ_KEY, to its queue. The frame is not written after writeBefore.
	Send(ctx context.Context, m txn.Message, writeBefore time.Time) error
	// Visible counts the messages with m's UNIQ_KEY in m's topic on m's broker, from the index, stored since then.
	Visible(ctx context.Context, m txn.Message, since time.Time) (int, error)
	// Probe returns when the broker has answered a request that was sent after the call began.
	Probe(ctx context.Context, broker string) error
	// Brokers returns the names of the masters that are known.
	Brokers() []string
}
