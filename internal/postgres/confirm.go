package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// Where a database has synchronous standbys, COMMIT is answered when they have confirmed it, and others do not see before
// then what it wrote. But they see it without a confirmation when the wait was cancelled, or when the server was restarted
// meanwhile; and it is lost when a standby takes over. So the service acts on nothing that it reads, unless this process
// has had the answer to its own COMMIT, or a write of its own, begun after the read, was confirmed: standbys confirm in the
// order of the log.

// ErrUnconfirmed says that no standby has confirmed a commit that waits for standbys by the database's settings.
var ErrUnconfirmed = errors.New("no standby has confirmed the commit")

// WaitsForStandbys is an SQL expression that is true where COMMIT waits for standbys.
const WaitsForStandbys = `current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')`

// askConfirmation writes to the log, and so waits for the standbys, where COMMIT does. A transaction that writes nothing to
// the log would not wait. The message means nothing to anybody.
const askConfirmation = `SELECT CASE WHEN ` + WaitsForStandbys + ` THEN pg_logical_emit_message(true, 'txsvc', '') IS NOT NULL ELSE false END`

// Confirming returns when everything that was seen in the database before the call is confirmed, or is as durable as COMMIT
// makes it there. waits says whether COMMIT waits for standbys. The error is ErrUnconfirmed, or that of the database.
func (db *DB) Confirming(ctx context.Context) (waits bool, err error) { return db.confirms.await(ctx) }

// confirmer finds out whether what was read is confirmed. Callers that ask at the same time share one write, which begins
// after the last of them has asked. The confirmer has a connection of its own: while no standby confirms, those of the
// pool are for other things. It is safe for concurrent use.
type confirmer struct {
	pool   *pgxpool.Pool // for its settings
	timing txn.Timing
	log    *slog.Logger
	ctx    context.Context // until the database is closed
	conn   *pgx.Conn       // nil: none; of the goroutine that writes
	// doubted: the last COMMIT that was heard of was not confirmed.
	doubted atomic.Bool

	mu        sync.Mutex
	now, next *confirmation // the write under way, and the one that begins when it ends
}

// confirmation is one write, for those who asked before it began.
type confirmation struct {
	began time.Time
	done  chan struct{}
	waits bool // COMMIT waits for standbys
	err   error
}

func (c *confirmer) await(ctx context.Context) (waits bool, err error) {
	w := c.join()
	if w == nil {
		return true, ErrUnconfirmed
	}
	timer := time.NewTimer(c.timing.ConfirmWithin)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.waits, w.err
	case <-timer.C:
		c.doubt()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.doubt()
		}
	}
	return true, ErrUnconfirmed
}

// join returns the next write to begin. It returns nil when the write under way has lasted so long already that waiting for
// the next one is useless.
func (c *confirmer) join() *confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.now == nil:
		c.now = &confirmation{began: time.Now(), done: make(chan struct{})}
		go c.run(c.now)
		return c.now
	case time.Since(c.now.began) > c.timing.ConfirmWithin:
		return nil
	case c.next == nil:
		c.next = &confirmation{done: make(chan struct{})}
	}
	return c.next
}

func (c *confirmer) run(w *confirmation) {
	for w != nil {
		w.waits, w.err = c.write()
		if w.err == nil && c.doubted.CompareAndSwap(true, false) && w.waits {
			c.log.InfoContext(c.ctx, "standbys confirm commits again")
		}
		c.mu.Lock()
		close(w.done)
		c.now, c.next = c.next, nil
		if w = c.now; w != nil {
			w.began = time.Now()
		} else if c.ctx.Err() != nil {
			c.disconnect()
		}
		c.mu.Unlock()
	}
}

func (c *confirmer) write() (waits bool, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timing.ConfirmWrite)
	defer cancel()
	if c.conn != nil && (c.conn.IsClosed() || !sessions.Silent(c.conn.PgConn().Conn())) {
		c.disconnect()
	}
	if c.conn == nil {
		if c.conn, err = sessions.Connect(ctx, c.pool); err != nil {
			return true, err
		}
	}
	err = c.conn.QueryRow(ctx, askConfirmation).Scan(&waits)
	if err == nil && sessions.Of(c.conn).TakeUnconfirmed() {
		err = ErrUnconfirmed
	}
	if err != nil {
		waits = true
	}
	if err != nil || !waits { // the connection is not needed again soon
		c.disconnect()
	}
	return waits, err
}

func (c *confirmer) disconnect() {
	if c.conn == nil {
		return
	}
	sessions.HangUp(c.ctx, c.conn)
	c.conn = nil
}

// doubt notes that a COMMIT was not confirmed in time, and logs it when that is new.
func (c *confirmer) doubt() {
	if c.doubted.CompareAndSwap(false, true) {
		c.log.WarnContext(c.ctx, "commits are not confirmed: the database waits for a standby, or does not answer; transactions are \"unknown\" until it does")
	}
}

// close returns when nothing is under way any more; c.ctx is done.
func (c *confirmer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.now != nil {
		w := c.now
		c.mu.Unlock()
		<-w.done
		c.mu.Lock()
	}
	c.disconnect()
}
