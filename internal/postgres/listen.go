package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres/sessions"
)

// channel carries the news between replicas that a message waits to be delivered.
const channel = "txsvc_relay"

// Notify wakes all replicas that listen. It does so in a transaction of its own: at the end of one that notified,
// PostgreSQL takes a lock on the database, behind which all others that notify wait for its COMMIT.
func (db *DB) Notify(ctx context.Context) error {
	if _, err := db.pool.Exec(ctx, `NOTIFY `+channel); err != nil {
		return fmt.Errorf("notifying other replicas: %w", err)
	}
	return nil
}

// errPooled: behind a pooler, a session that listens would be another client's next.
var errPooled = errors.New("behind a connection pooler")

// Listen calls woken when a replica notified, and whenever it may have missed that, until ctx is done. It has a
// connection of its own, beside the pool.
func (db *DB) Listen(ctx context.Context, woken func()) {
	for ctx.Err() == nil {
		err := db.listen(ctx, woken)
		if errors.Is(err, errPooled) {
			db.log.InfoContext(ctx, "the database is behind a connection pooler: statements are not kept prepared, and messages that other replicas leave are found by looking, not by notification")
			return
		}
		if err != nil && ctx.Err() == nil {
			db.log.DebugContext(ctx, "listening for other replicas; it is tried again", "error", err)
		}
		pause.For(ctx, listenRetry)
	}
}

func (db *DB) listen(ctx context.Context, woken func()) error {
	conn, err := sessions.Dial(ctx, db.pool)
	if err != nil {
		return err
	}
	defer sessions.HangUp(ctx, conn)
	if sessions.Of(conn).Pooled() {
		return errPooled
	}
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	for {
		woken()
		waiting, cancel := context.WithTimeout(ctx, listenCheck)
		_, err := conn.WaitForNotification(waiting)
		silence := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && !silence {
			return err
		}
		if silence {
			if err := db.ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func (db *DB) ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, db.timing.PingWithin)
	defer cancel()
	return conn.Ping(ctx)
}
