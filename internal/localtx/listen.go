package localtx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/pause"
)

const (
	// channel is what replicas tell one another on that something waits to be delivered.
	channel = "txsvc_relay"
	// listenCheck is how long a silent connection is trusted.
	listenCheck = 30 * time.Second
	listenRetry = time.Second
)

// Notify wakes all that listen, in a transaction of its own: at the end of one that notified, PostgreSQL takes a lock on the
// database, behind which all others that notify wait for its COMMIT.
func (s *Store) Notify(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `NOTIFY `+channel); err != nil {
		return fmt.Errorf("notifying other replicas: %w", err)
	}
	return nil
}

// errPooled: behind a pooler, a session that listens would be another client's next.
var errPooled = errors.New("behind a connection pooler")

// Listen calls woken when a replica notified, and whenever it may have missed that, until ctx is done. It has a
// connection of its own, beside the pool.
func (s *Store) Listen(ctx context.Context, woken func()) {
	for ctx.Err() == nil {
		err := s.listen(ctx, woken)
		if errors.Is(err, errPooled) {
			s.log.InfoContext(ctx, "the database is behind a connection pooler: statements are not kept prepared, and what other replicas leave is looked for, not heard of")
			return
		}
		if err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "listening for other replicas; it is tried again", "error", err)
		}
		pause.For(ctx, listenRetry)
	}
}

func (s *Store) listen(ctx context.Context, woken func()) error {
	conn, err := dial(ctx, s.pool)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if sessionOf(conn.PgConn()).pooled {
		return errPooled
	}
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	for {
		woken()
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		_, err := conn.WaitForNotification(wait)
		silence := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && !silence {
			return err
		}
		if silence {
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}
