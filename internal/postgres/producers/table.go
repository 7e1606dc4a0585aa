package producers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/postgres"
)

// table is the Database in PostgreSQL.
type table struct{ db *postgres.DB }

var errNotCommitted = errors.New("COMMIT of a failed transaction")

// Write implements Database.
func (t table) Write(ctx context.Context, prefix string, w Watermark) (tracks bool, err error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`) // or flushes of several processes would fail to serialize
	if !w.Durable {
		batch.Queue(`SET LOCAL synchronous_commit TO off`)
	}
	if len(w.HandOver) > 0 {
		batch.Queue(handOver, w.HandOver, t.db.Timing().Lease())
	}
	statement, args := register, []any{prefix, w.VisibleBefore, w.SettledBefore, w.Ceiling}
	if len(w.After) > 0 {
		statement, args = flush, append(args, w.After)
	}
	lost := false
	batch.Queue(statement, args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&tracks)
		if lost = errors.Is(err, pgx.ErrNoRows); lost {
			return nil
		}
		return err
	})
	if len(w.Times) > 0 {
		batch.Queue(logVisible, prefix, w.VisibleBefore, w.Times)
	}
	batch.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return errNotCommitted
		}
		return nil
	})
	if err := t.db.Write(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, batch).Close() }); err != nil {
		return false, fmt.Errorf("writing a watermark: %w", err)
	}
	if lost {
		return false, ErrLost
	}
	return tracks, nil
}

// Last implements Database.
func (t table) Last(ctx context.Context, prefix string) (at time.Time, err error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	var visibleBefore *time.Time
	err = t.db.Pool().QueryRow(ctx, last, prefix).Scan(&visibleBefore)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && visibleBefore == nil:
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("reading the last watermark: %w", err)
	}
	return visibleBefore.UTC(), nil
}

// HandOverSince implements Database.
func (t table) HandOverSince(ctx context.Context, prefix string, from, to time.Time) (int64, error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	tag, err := t.db.Exec(ctx, handOverSince, prefix, t.db.Timing().Lease(), from, to)
	if err != nil {
		return 0, fmt.Errorf("handing over the rows since the last watermark: %w", err)
	}
	return tag.RowsAffected(), nil
}

// Forget implements Database.
func (t table) Forget(ctx context.Context, prefix string) error {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	if _, err := t.db.Pool().Exec(ctx, forget, prefix, known); err != nil {
		return fmt.Errorf("forgetting processes that are gone: %w", err)
	}
	return nil
}

// OwnHalf implements Database.
func (t table) OwnHalf(ctx context.Context, prefix, id, uniqKey string) (own bool, err error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	if err := t.db.Pool().QueryRow(ctx, ownHalf, prefix, id, uniqKey).Scan(&own); err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return own, nil
}

// UnderWay implements Database.
func (t table) UnderWay(ctx context.Context, prefix string, by time.Time) (is bool, err error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	if err := t.db.Pool().QueryRow(ctx, underWay, prefix, by, t.db.Timing().Lease()).Scan(&is); err != nil {
		return false, fmt.Errorf("looking for the process of a half message: %w", err)
	}
	return is, nil
}

// Silent implements Database.
func (t table) Silent(ctx context.Context) ([]string, error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	rows, err := t.db.Pool().Query(ctx, silent, t.db.Timing().Lease())
	if err != nil {
		return nil, fmt.Errorf("looking for processes that are gone: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("looking for processes that are gone: %w", err)
	}
	return gone, nil
}

// Adopt implements Database.
func (t table) Adopt(ctx context.Context, prefix string) (int64, error) {
	ctx, cancel := t.db.Bounded(ctx)
	defer cancel()
	tag, err := t.db.Exec(ctx, adopt, prefix, t.db.Timing().Lease())
	if err != nil {
		return 0, fmt.Errorf("adopting the rows of a process that is gone: %w", err)
	}
	return tag.RowsAffected(), nil
}
