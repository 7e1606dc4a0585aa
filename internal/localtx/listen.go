package localtx

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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

// Listen calls woken when a replica notified, and whenever it may have missed that, until ctx is done. It has a
// connection of its own, beside the pool.
func (s *Store) Listen(ctx context.Context, woken func()) {
	for ctx.Err() == nil {
		if err := s.listen(ctx, woken); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "listening for other replicas; it is tried again", "error", err)
		}
		pause(ctx, listenRetry)
	}
}

func (s *Store) listen(ctx context.Context, woken func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
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
