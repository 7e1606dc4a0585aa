package localtx

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txsvc/txsvc/internal/localtx/sqltext"
)

// guardedTx does not let a handler end the transaction, because what it has changed would be committed without its row, and so
// without its message. What a handler does through Conn is its own affair.
type guardedTx struct{ pgx.Tx }

func (guardedTx) Commit(context.Context) error   { return errEnded }
func (guardedTx) Rollback(context.Context) error { return errEnded }

func (tx guardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := guard(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx guardedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := guard(sql); err != nil {
		return nil, err
	}
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx guardedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := guard(sql); err != nil {
		return failedRow{err}
	}
	return tx.Tx.QueryRow(ctx, sql, args...)
}

func (tx guardedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := guard(sql); err != nil {
		return nil, err
	}
	return tx.Tx.Prepare(ctx, name, sql)
}

func (tx guardedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := guard(q.SQL); err != nil {
			return failedBatch{err: err}
		}
	}
	return tx.Tx.SendBatch(ctx, b)
}

// Begin begins a savepoint, which the handler may end.
func (tx guardedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return guardedSavepoint{guardedTx{nested}, nested}, nil
}

type guardedSavepoint struct {
	guardedTx
	savepoint pgx.Tx
}

func (s guardedSavepoint) Commit(ctx context.Context) error   { return s.savepoint.Commit(ctx) }
func (s guardedSavepoint) Rollback(ctx context.Context) error { return s.savepoint.Rollback(ctx) }

// failedRow and failedBatch are what there is to read of statements that were not sent.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

type failedBatch struct {
	pgx.BatchResults // nil
	err              error
}

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRow{b.err} }
func (b failedBatch) Close() error                     { return b.err }

// guard returns an error for SQL that ends the transaction. The statements of programs are mostly the same, so that the
// answers are kept.
func guard(sql string) error {
	guarded.RLock()
	ends, ok := guarded.known[sql]
	guarded.RUnlock()
	if !ok {
		ends = sqltext.EndsTransaction(sql)
		guarded.Lock()
		if len(guarded.known) < guardedLimit {
			guarded.known[sql] = ends
		}
		guarded.Unlock()
	}
	if ends {
		return errEnded
	}
	return nil
}

const guardedLimit = 1000

var guarded = struct {
	sync.RWMutex
	known map[string]bool
}{known: make(map[string]bool)}
