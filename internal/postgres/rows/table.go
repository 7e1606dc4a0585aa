package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/txn"
)

// Table is the table of transactions. It is safe for concurrent use. No call takes longer than a few seconds.
type Table struct {
	db        *postgres.DB
	marks     *Marks
	producers *producers.Producers
}

// New returns the table of the database. What it says includes the marks that are not written yet.
func New(db *postgres.DB, marks *Marks, producers *producers.Producers) *Table {
	return &Table{db: db, marks: marks, producers: producers}
}

// Find returns the row with the id, or txn.ErrNotFound. Where COMMIT waits for standbys, a row that none has confirmed has
// the state txn.StateUnknown, and nothing of what follows from the outcome.
func (s *Table) Find(ctx context.Context, id string) (*txn.Transaction, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	// Marks are looked up on both sides of the read, because one may be written, and forgotten, in between.
	before := s.marks.of(id)
	t, waits, err := scan(s.db.Pool().QueryRow(ctx, find, id, txn.MaxResultLimit))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, txn.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading transaction %s: %w", id, err)
	}
	before.overlay(t)
	s.marks.of(id).overlay(t)
	if waits && t.Delivery != txn.DeliveryDelivered { // a message that is delivered was confirmed before
		if _, err := s.db.Confirming(ctx); err != nil {
			return unconfirmed(t), nil
		}
	}
	return t, nil
}

// unconfirmed is a transaction whose outcome is not known.
func unconfirmed(t *txn.Transaction) *txn.Transaction {
	return &txn.Transaction{
		ID: t.ID, Kind: t.Kind, State: txn.StateUnknown, Delivery: txn.DeliveryNone, ShardKey: t.ShardKey, Topic: t.Topic, Tag: t.Tag,
		Route: t.Route, MessageID: t.MessageID, CreatedAt: t.CreatedAt, Fingerprint: t.Fingerprint, Ordered: t.Ordered,
	}
}

// Refuse stores a rejection, so that the same id gets the same answer, and returns its row. It returns nil when another
// attempt with the id was decided meanwhile.
func (s *Table) Refuse(ctx context.Context, a *txn.Attempt, rejection *txn.Rejection) (*txn.Transaction, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	t := Of(a, txn.StateRolledBack, time.Now())
	t.Rejection = rejection
	args, err := rowValues(a, t, 0)
	if err != nil {
		return nil, err
	}
	err = s.db.Write(ctx, func(conn *pgx.Conn) error {
		t.DecidedAt, err = ScanDecided(conn.QueryRow(ctx, refuse, args...))
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // see above
	case err != nil:
		return nil, err
	}
	return t, nil
}

// Pending counts the committed rows whose message is not known to be visible. It reads all of them.
func (s *Table) Pending(ctx context.Context) (txn.Pending, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	var p txn.Pending
	var oldest float64
	if err := s.db.Pool().QueryRow(ctx, countPending).Scan(&p.Count, &p.Parked, &oldest); err != nil {
		return p, fmt.Errorf("counting pending deliveries: %w", err)
	}
	p.Oldest = time.Duration(oldest * float64(time.Second))
	return p, nil
}

// Redeliver makes a parked row due, and returns the row; see txn.Store. A row that is not parked is tried again anyway.
func (s *Table) Redeliver(ctx context.Context, id string) (*txn.Transaction, error) {
	ctx, cancel := s.db.Bounded(ctx)
	defer cancel()
	if _, err := s.db.Exec(ctx, redeliver, id); err != nil {
		return nil, fmt.Errorf("asking for transaction %s to be delivered: %w", id, err)
	}
	t, err := s.Find(ctx, id)
	if errors.Is(err, txn.ErrNotFound) { // retention deleted the row after the caller had read it, so it was delivered
		return nil, txn.Errorf(txn.CodeNotFound, "no transaction has this id")
	}
	return t, err
}
