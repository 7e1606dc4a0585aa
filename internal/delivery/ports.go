package delivery

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/delivery/claimed"
	"github.com/txsvc/txsvc/internal/delivery/evidence"
	"github.com/txsvc/txsvc/internal/delivery/groups"
	"github.com/txsvc/txsvc/internal/delivery/lines"
	"github.com/txsvc/txsvc/internal/delivery/outbox"
	"github.com/txsvc/txsvc/internal/txn"
)

// Ports are what deliveries use. All but Evidence are required; one object may implement several.
type Ports struct {
	// Of PostgreSQL.
	Decisions Decisions
	Begun     Begun
	Gone      Gone
	Halves    HalfClaims
	Outbox    outbox.Claims
	Lines     lines.Claims
	Waiting   Waiting
	Pending   Pending
	Rows      Rows
	// Of RocketMQ.
	Broker Broker
	Probes evidence.Index
	Copies claimed.Index
	// Queues knows what became of queues.
	Queues Queues
	// Evidence, when it is not nil, replaces the gathered evidence in tests.
	Evidence claimed.Evidence
}

// Decisions say what half messages are to be told.
type Decisions interface {
	// OwnHalf says whether a half message is of this database: of one of the processes that work on it, or named by a row.
	OwnHalf(ctx context.Context, id, uniqKey string) (bool, error)
	// Decide says what a half message is to be told, fencing it when no attempt with its id was decided.
	Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error)
}

// Begun ends attempts; see txn.Store.
type Begun interface {
	// Settle says that no message of an attempt is pending.
	Settle(began time.Time)
	// HandOver says that the row of an attempt may have a message that nobody confirmed.
	HandOver(began time.Time)
}

// Gone finds what processes left behind that are gone.
type Gone interface {
	// Adopt makes their rows due whose messages are not known to be visible, and returns how many.
	Adopt(ctx context.Context) (int64, error)
}

// HalfClaims leases rows that have a half message.
type HalfClaims interface {
	// ClaimDue leases rows of the given brokers that belong to no line and have no lease.
	ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error)
	// ClaimOne leases the row of the half message, unless somebody works on it or on one before it in its line.
	ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error)
}

// Waiting finds the groups of rows that wait for the outbox or in lines, and passes that on between replicas.
type Waiting interface {
	// Groups returns the topics on brokers for which outbox rows wait, and, without a broker, the topics with lines.
	Groups(ctx context.Context) ([]txn.Group, error)
	// Notify wakes all replicas that listen, this one among them.
	Notify(ctx context.Context) error
	// Listen calls woken when a replica notified, and whenever it may have missed that, until ctx is done.
	Listen(ctx context.Context, woken func())
}

// Pending counts committed messages that are not known to be visible.
type Pending interface {
	// Pending counts it.
	Pending(ctx context.Context) (txn.Pending, error)
	// NoteWaiting writes why messages for the broker wait into up to limit pending rows that do not say, and are not parked.
	NoteWaiting(ctx context.Context, broker, reason string, limit int) error
}

// Rows gives claimed rows back, and marks delivered ones.
type Rows interface {
	claimed.Leases
	outbox.Rows
	lines.Marks
}

// Broker is the connection to the brokers.
type Broker interface {
	evidence.Broker
	groups.Brokers
	claimed.Broker
	outbox.Broker
}

// Queues knows what became of the queues of rows.
type Queues interface {
	claimed.Queues
	outbox.Queues
}

// brokers are the masters that are known.
type brokers interface {
	Brokers() []string
}

// answering knows which brokers answer.
type answering interface {
	Answering(broker string) bool
}
