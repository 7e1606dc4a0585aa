package localtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// fenceWait is how long a fence waits for a local transaction that holds the id's key and is still running.
const fenceWait = "1s"

// fence keeps the local transaction of a half message from ever committing: it takes the id's key first, or finds it
// taken. Whoever comes second waits for the other, in the database.
const fence = `INSERT INTO txsvc.transactions (id, kind, state, delivery, abandoned, fenced, shard_key, topic, tag,
		broker, queue_id, selector, reason, uniq_key, commit_log_offset, queue_offset, created_at, decided_at)
	VALUES ($1, $2, 'rolled_back', 'none', true, ARRAY[$3::text], $4, $5, $6,
		$7, $8, '', '', $3, $9, $10, $11, $11)
	ON CONFLICT (id) DO UPDATE SET fenced = array_append(transactions.fenced, $3)
	WHERE transactions.abandoned AND NOT ($3 = ANY (coalesce(transactions.fenced, '{}')))`

// Decide says what a half message is to be told, and makes it so: when no attempt with the id was decided, it puts a
// fence on this half message first. VerdictUndecided means that its local transaction is still running. The row is nil
// only then. It is the one place where "rollback" comes from for a half message whose process is gone.
func (s *Store) Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Verdict, *txn.Transaction, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	t, err := s.Find(ctx, m.TxID)
	if err != nil && !errors.Is(err, txn.ErrNotFound) {
		return txn.VerdictUndecided, nil, err
	}
	if err == nil && !t.Abandoned {
		return verdictOf(t, h), t, nil
	}
	t, err = s.putFence(ctx, m, h)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "55P03" {
		return txn.VerdictUndecided, nil, nil
	}
	if err != nil {
		return txn.VerdictUndecided, nil, fmt.Errorf("fencing a half message of transaction %s: %w", m.TxID, err)
	}
	return verdictOf(t, h), t, nil
}

func verdictOf(t *txn.Transaction, h txn.Half) txn.Verdict {
	switch {
	case t.State == txn.StateUnknown:
		return txn.VerdictUndecided
	case t.State == txn.StateRolledBack || t.MessageID != h.UniqKey:
		return txn.VerdictRollback
	case t.State == txn.StatePrepared:
		return txn.VerdictUndecided
	case t.Delivery == txn.DeliveryDelivered:
		return txn.VerdictDelivered
	default:
		return txn.VerdictCommit
	}
}

func (s *Store) putFence(ctx context.Context, m txn.Message, h txn.Half) (*txn.Transaction, error) {
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`) // the fence has to see what was committed while it waited
	batch.Queue(`SET LOCAL lock_timeout = '` + fenceWait + `'`)
	batch.Queue(fence, m.TxID, m.Kind, h.UniqKey, m.ShardKey, m.Topic, m.Tag,
		m.Queue.Broker, m.Queue.ID, h.CommitLogOffset, h.QueueOffset, stamp(now()))
	batch.Queue(`COMMIT`)
	if err := s.write(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, batch).Close() }); err != nil {
		return nil, err
	}
	// Read after the COMMIT was answered: what it shows holds from now on.
	return s.Find(ctx, m.TxID)
}

func now() time.Time { return time.Now() }
