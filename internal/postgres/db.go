package postgres

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// DB is the service's database. It is safe for concurrent use.
type DB struct {
	pool     *pgxpool.Pool
	timing   txn.Timing
	log      *slog.Logger
	confirms *confirmer
	closing  context.CancelFunc
}

// Open returns the database of the URL. It does not connect yet.
func Open(ctx context.Context, url string, timing txn.Timing, log *slog.Logger) (*DB, error) {
	pool, err := sessions.NewPool(ctx, url, timing)
	if err != nil {
		return nil, err
	}
	open, closing := context.WithCancel(context.Background())
	return &DB{
		pool: pool, timing: timing, log: log, closing: closing,
		confirms: &confirmer{pool: pool, timing: timing, log: log, ctx: open},
	}, nil
}

// Close closes all connections. Everything that uses them has to have ended.
func (db *DB) Close() {
	db.closing()
	db.confirms.close()
	db.pool.Close()
}

// Pool returns the connections, for reads, and for writes on whose effect nobody acts: what Write adds is missing.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// Timing returns the durations that the database was opened with.
func (db *DB) Timing() txn.Timing { return db.timing }

// Bounded limits statements on the service's own tables: the contexts of their callers may carry values only.
func (db *DB) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, db.timing.StatementWithin)
}

// Write runs statements whose effect is acted on, and that begin and end their own transaction: they are done when there
// is no error, and confirmed by standbys. A context that ends cancels the wait for standbys. That does no harm: the caller
// does not act on the effect then, and others who see it ask for a confirmation of their own.
func (db *DB) Write(ctx context.Context, do func(conn *pgx.Conn) error) error {
	if db.confirms.doubted.Load() { // each try would leave something behind that is not acted on
		if _, err := db.confirms.await(ctx); err != nil {
			return err
		}
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	session := sessions.Of(conn.Conn())
	session.TakeUnconfirmed() // a COMMIT of somebody else may have left it
	err = do(conn.Conn())
	if err == nil && session.TakeUnconfirmed() {
		err = ErrUnconfirmed
	}
	if errors.Is(err, ErrUnconfirmed) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		db.confirms.doubt()
	}
	if err != nil {
		db.EndTransaction(context.WithoutCancel(ctx), conn.Conn())
	}
	return err
}

// Exec is Write for one statement.
func (db *DB) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = db.Write(ctx, func(conn *pgx.Conn) error {
		tag, err = conn.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// EndTransaction ends what is left of a failed transaction. Where that fails, it closes the connection, which makes the
// server do the same.
func (db *DB) EndTransaction(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, db.timing.HangWithin)
	defer cancel()
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		_ = conn.Close(ctx)
	}
}
