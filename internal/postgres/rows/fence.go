package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/txn"
)

// Decide returns the resolution of a half message, and makes it final: when no attempt with the id was decided, it puts a
// fence on this half message first. ResolutionUndecided means that its local transaction is still running. The row is nil
// only then. No other place makes a half message roll back whose process is gone.
func (s *Table) Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	t, err := s.Find(ctx, m.TxID)
	if err != nil && !errors.Is(err, txn.ErrNotFound) {
		return txn.ResolutionUndecided, nil, err
	}
	if err == nil && !t.Abandoned {
		return resolutionOf(t, h), t, nil
	}
	if !h.StoredAt.IsZero() {
		if underWay, err := s.producers.UnderWay(ctx, h.UniqKey, h.StoredAt); underWay || err != nil {
			return txn.ResolutionUndecided, nil, err
		}
	}
	t, err = s.putFence(ctx, m, h)
	if isLocked(err) {
		return txn.ResolutionUndecided, nil, nil
	}
	if err != nil {
		return txn.ResolutionUndecided, nil, fmt.Errorf("fencing a half message of transaction %s: %w", m.TxID, err)
	}
	return resolutionOf(t, h), t, nil
}

func resolutionOf(t *txn.Transaction, h txn.Half) txn.Resolution {
	switch {
	case t.State == txn.StateUnknown:
		return txn.ResolutionUndecided
	case t.State == txn.StateRolledBack || t.MessageID != h.UniqKey:
		return txn.ResolutionRollback
	case t.State == txn.StatePrepared:
		return txn.ResolutionUndecided
	case t.Delivery == txn.DeliveryDelivered:
		return txn.ResolutionDelivered
	default:
		return txn.ResolutionCommit
	}
}

// IsHeld says whether a transaction that is not over has written a row with the id: one that waits for a standby at COMMIT, for
// example.
func (s *Table) IsHeld(ctx context.Context, id string) bool {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	batch.Queue(`SET LOCAL lock_timeout = 50`)
	batch.Queue(fence, id, "", "", "", "", "", "", 0, 0, 0, time.Now())
	batch.Queue(`ROLLBACK`)
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return false
	}
	defer conn.Release()
	err = conn.SendBatch(ctx, batch).Close()
	s.db.EndTransaction(context.WithoutCancel(ctx), conn.Conn())
	return isLocked(err)
}

// isLocked says that the id's key is held by a transaction that is not over.
func isLocked(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "55P03" // lock_not_available
}

func (s *Table) putFence(ctx context.Context, m txn.Message, h txn.Half) (*txn.Transaction, error) {
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`) // the fence has to see what was committed while it waited
	batch.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = %d`, s.db.Timing().FenceWithin.Milliseconds()))
	batch.Queue(fence, m.TxID, m.Kind, h.UniqKey, m.ShardKey, m.Topic, m.Tag,
		m.Queue.Broker, m.Queue.ID, h.CommitLogOffset, h.QueueOffset, Stamp(time.Now()))
	batch.Queue(`COMMIT`)
	if err := s.db.Write(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, batch).Close() }); err != nil {
		return nil, err
	}
	// The row is read after COMMIT was answered: from then on it stays as it is.
	return s.Find(ctx, m.TxID)
}
