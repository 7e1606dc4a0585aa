package localtx

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/txn"
)

// Where a database has synchronous standbys, COMMIT is answered when they have confirmed it, and what it wrote is not seen by
// others before. But it is seen without their confirmation when the wait was cancelled, or the server was restarted
// meanwhile; and is lost when a standby takes over. So nothing that is read is acted on, unless this process has had the
// answer to its COMMIT, or a write of its own, begun after the read, was confirmed: standbys confirm in the order of the log.

const (
	// confirmWait is how long a reader waits for the confirmation of what it has read.
	confirmWait = 2 * time.Second
	// writeWait is how long one write that asks for a confirmation is waited for. Its session may have been lost without a
	// word; the next one is on a new connection.
	writeWait = 5 * time.Second
)

// errUnconfirmed: no standby has confirmed it that COMMIT waits for by the database's settings.
var errUnconfirmed = errors.New("no standby has confirmed the commit")

// waitsForStandbys is true where COMMIT waits for standbys.
const waitsForStandbys = `current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')`

// askConfirmation writes to the log, and so waits for the standbys, where COMMIT does. A transaction that writes nothing to it
// would not wait. The message means nothing to anybody.
const askConfirmation = `SELECT CASE WHEN ` + waitsForStandbys + ` THEN pg_logical_emit_message(true, 'txsvc', '') IS NOT NULL ELSE false END`

// confirmer finds out whether what was read is confirmed. Those who ask at the same time share one write, which begins after
// the last of them has asked. It has a connection of its own: while no standby confirms, the pool's are for other
// things. Safe for concurrent use.
type confirmer struct {
	pool *pgxpool.Pool // for its settings
	log  *slog.Logger
	ctx  context.Context // until the store is closed
	conn *pgx.Conn       // nil: none; of the goroutine that writes
	// doubted: the last that was heard of COMMIT was that it is not confirmed.
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

// await returns when all that was seen in the database before the call is confirmed, or is as durable as COMMIT makes it
// there. waits says whether COMMIT waits for standbys.
func (c *confirmer) await(ctx context.Context) (waits bool, err error) {
	w := c.join()
	if w == nil {
		return true, errUnconfirmed
	}
	timer := time.NewTimer(confirmWait)
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
	return true, errUnconfirmed
}

// join returns the next write to begin; nil when the one under way has lasted so long already that it is not worth waiting.
func (c *confirmer) join() *confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.now == nil:
		c.now = &confirmation{began: time.Now(), done: make(chan struct{})}
		go c.run(c.now)
		return c.now
	case time.Since(c.now.began) > confirmWait:
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
	ctx, cancel := context.WithTimeout(c.ctx, writeWait)
	defer cancel()
	if c.conn != nil && (c.conn.IsClosed() || !silent(c.conn.PgConn().Conn())) {
		c.disconnect()
	}
	if c.conn == nil {
		if c.conn, err = connect(ctx, c.pool); err != nil {
			return true, err
		}
	}
	err = c.conn.QueryRow(ctx, askConfirmation).Scan(&waits)
	if err == nil && takeUnconfirmed(c.conn) {
		err = errUnconfirmed
	}
	if err != nil {
		waits = true
	}
	if err != nil || !waits { // then it is not needed again soon
		c.disconnect()
	}
	return waits, err
}

// connect opens a connection like those of the pool, beside it.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	conn, err := dial(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := prepareSession(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (c *confirmer) disconnect() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx)
	c.conn = nil
}

// doubt notes that a COMMIT was not confirmed in time, and tells when that is new.
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

// Confirming says whether COMMIT waits for standbys, and with errUnconfirmed that none confirms it now.
func (s *Store) Confirming(ctx context.Context) (waits bool, err error) {
	return s.confirms.await(ctx)
}

// confirmed returns what a row may be taken for that was read: itself, or, while it is not known to be confirmed, a
// transaction whose outcome is not known. What is delivered was confirmed before.
func (s *Store) confirmed(ctx context.Context, t *txn.Transaction, waits bool) *txn.Transaction {
	if !waits || t.Delivery == txn.DeliveryDelivered {
		return t
	}
	if _, err := s.confirms.await(ctx); err == nil {
		return t
	}
	return &txn.Transaction{
		ID: t.ID, Kind: t.Kind, State: txn.StateUnknown, Delivery: txn.DeliveryNone, ShardKey: t.ShardKey, Topic: t.Topic, Tag: t.Tag,
		Route: t.Route, MessageID: t.MessageID, CreatedAt: t.CreatedAt, Fingerprint: t.Fingerprint, Ordered: t.Ordered,
	}
}

// write runs statements whose effect is acted on, and that begin and end their own transaction: they are done when there
// is no error, and confirmed. A context that ends cancels the wait for standbys, which is no harm: the effect is not acted
// on then, and others who see it ask for a confirmation of their own.
func (s *Store) write(ctx context.Context, do func(conn *pgx.Conn) error) error {
	if s.confirms.doubted.Load() { // each try would leave something behind that is not acted on
		if _, err := s.confirms.await(ctx); err != nil {
			return err
		}
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	takeUnconfirmed(conn.Conn()) // what is left of others
	err = do(conn.Conn())
	if err == nil && takeUnconfirmed(conn.Conn()) {
		err = errUnconfirmed
	}
	if errors.Is(err, errUnconfirmed) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.confirms.doubt()
	}
	if err != nil {
		endTransaction(context.WithoutCancel(ctx), conn.Conn())
	}
	return err
}

// exec is write for one statement.
func (s *Store) exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = s.write(ctx, func(conn *pgx.Conn) error {
		tag, err = conn.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// noteUnconfirmed notices that PostgreSQL has given up to wait for standbys: it says so with a warning, and goes on to
// answer that COMMIT was done. The name of its function is not translated.
func noteUnconfirmed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		sessionOf(conn).unconfirmed = true
	}
}

// takeUnconfirmed returns, and forgets, that a COMMIT of the connection was not confirmed.
func takeUnconfirmed(conn *pgx.Conn) bool {
	noted := sessionOf(conn.PgConn())
	was := noted.unconfirmed
	noted.unconfirmed = false
	return was
}

// errNoCancel is never seen: pgx asks for nothing but that it is tried.
var errNoCancel = errors.New("a COMMIT is not cancelled")

// keepCommits keeps pgx from cancelling a COMMIT. When it gives a connection up, it sends the request to cancel on another one,
// to the end that nothing goes on for nobody; a COMMIT that waits for standbys would be seen by others unconfirmed.
func keepCommits(config *pgx.ConnConfig) {
	noted, dial, connected := &session{}, config.DialFunc, config.AfterConnect
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if noted.commits.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		noted.pooled = sessionOf(conn).pooled
		conn.CustomData()[sessionKey] = noted
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
}
