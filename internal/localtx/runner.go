package localtx

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txsvc/txsvc/internal/localtx/residue"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/postgres"
	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/postgres/rows"
	"github.com/txsvc/txsvc/internal/postgres/sessions"
	"github.com/txsvc/txsvc/internal/txn"
)

// Runner runs local transactions. It is safe for concurrent use.
type Runner struct {
	db       *postgres.DB
	rows     *rows.Table
	tracked  *producers.Self
	residue  *residue.Watcher
	programs map[string]task.Program // by kind
	timing   txn.Timing
	lease    time.Duration
	slots    chan struct{} // one for each local transaction that runs

	closing context.Context
	close   context.CancelFunc
	left    sync.WaitGroup // COMMITs that are waited for although their requests were answered
}

// New returns a Runner of the kinds' programs. The watcher should be running: before its first look, every session is reset
// after each transaction.
func New(db *postgres.DB, table *rows.Table, tracked *producers.Self, watcher *residue.Watcher, programs map[string]task.Program) *Runner {
	closing, cancel := context.WithCancel(context.Background())
	return &Runner{
		db: db, rows: table, tracked: tracked, residue: watcher, programs: programs, timing: db.Timing(), lease: db.Timing().Lease(),
		slots: make(chan struct{}, slots(db.Pool().Config().MaxConns)), closing: closing, close: cancel,
	}
}

// slots is how many of the pool's connections local transactions may use at once. The rest is for the work that has to go
// on while they hang, on a lock for example: answers about known transactions, check-backs, deliveries.
func slots(conns int32) int32 { return max(1, conns-max(1, conns/8)) }

// Close gives up waiting for COMMITs that no standby confirms, so that the database can be closed. They are not cancelled:
// PostgreSQL goes on with them. Run must not be called any more.
func (s *Runner) Close() {
	s.close()
	s.left.Wait()
}

// Run runs the local transaction of the attempt; see txn.Store. Each run has the kind's timeout for itself, because a
// deadlock alone takes PostgreSQL a second to see.
func (s *Runner) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	w, err := task.New(s.programs[a.Kind.Name], task.InputOf(a), a.Kind.ResultBytes())
	if err != nil {
		return s.answer(ctx, a, failure{err: err}.ending())
	}
	replaces := false // the id's row is abandoned, and the attempt's row takes its place
	for n := 1; ; n++ {
		r, e := s.runOnce(ctx, a, w, replaces)
		switch e.kind {
		case endCommitted:
			return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: r.row, Lease: r.lease, Head: r.head, Tracked: r.tracked}
		case endUnknown:
			return s.settle(ctx, r, e.err)
		case endTaken:
			o, abandoned := s.taken(ctx, a)
			switch {
			case !abandoned:
				return o
			case replaces: // it fences this half message
				return failed(unavailable(e.err, detailGivenUp))
			}
			replaces = true
		case endAgain:
		default:
			return s.answer(ctx, a, e)
		}
		if n == s.timing.LocalRuns || a.IsLast(time.Now()) {
			return failed(unavailable(e.err, detailNotSerial))
		}
		if e.kind == endAgain {
			pause.For(ctx, rand.N(s.timing.RerunPause<<n))
		}
	}
}

// answer is the outcome of a run that ended without a row to look at.
func (s *Runner) answer(ctx context.Context, a *txn.Attempt, e ending) txn.Outcome {
	switch e.kind {
	case endRejected:
		return s.refuse(ctx, a, e.rejection)
	case endWaiting:
		return txn.Outcome{Kind: txn.OutcomeUnknown, Err: e.err}
	case endFailed:
		if e.looks {
			if o, _ := s.taken(ctx, a); o.Kind == txn.OutcomeTaken {
				return o
			}
		}
		if e.late && s.rows.IsHeld(ctx, a.Request.ID) {
			return failed(&txn.Error{Code: txn.CodeConflict, Detail: detailRunning, Cause: e.err})
		}
	}
	return failed(e.err)
}

func failed(err error) txn.Outcome { return txn.Outcome{Kind: txn.OutcomeFailed, Err: err} }

// refuse stores a rejection, so that the same id gets the same answer.
func (s *Runner) refuse(ctx context.Context, a *txn.Attempt, rejection *txn.Rejection) txn.Outcome {
	t, err := s.rows.Refuse(ctx, a, rejection)
	switch {
	case err != nil:
		return failed(unavailable(err, detailNotStored))
	case t == nil:
		o, _ := s.taken(ctx, a)
		return o
	default:
		return txn.Outcome{Kind: txn.OutcomeRejected, Transaction: t}
	}
}

// taken is the outcome for an id that has a row, unless that is abandoned.
func (s *Runner) taken(ctx context.Context, a *txn.Attempt) (o txn.Outcome, abandoned bool) {
	t, err := s.rows.Find(ctx, a.Request.ID)
	switch {
	case err != nil:
		return failed(noAnswer(err)), false
	case t.Abandoned:
		return failed(errFenced), true
	default:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}, false
	}
}

// settle tries to find out at once whether a transaction whose COMMIT was not answered did commit.
func (s *Runner) settle(ctx context.Context, r *run, cause error) txn.Outcome {
	ctx, cancel := context.WithTimeout(ctx, s.timing.SettleWithin)
	defer cancel()
	resolution, t, err := s.rows.Decide(ctx, r.attempt.Message, r.attempt.Half)
	switch {
	case err != nil || resolution == txn.ResolutionUndecided:
		return txn.Outcome{Kind: txn.OutcomeUnknown, Err: cause}
	case resolution == txn.ResolutionCommit, resolution == txn.ResolutionDelivered: // delivered by another replica, meanwhile
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: t, Lease: r.lease}
	case !t.Abandoned:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}
	case r.at == phaseEnded:
		return failed(&txn.Error{Code: txn.CodeInternal, Detail: detailEnded, Cause: cause})
	default:
		return failed(unavailable(cause, detailLost))
	}
}

// runOnce runs the local transaction once. The run is nil when there was no connection for it.
func (s *Runner) runOnce(ctx context.Context, a *txn.Attempt, w task.Task, replaces bool) (*run, ending) {
	conn, err := s.acquire(ctx, a.Kind.Timeout)
	if errors.Is(err, errAllInUse) {
		return nil, ending{kind: endFailed, err: unavailable(err, detailAllInUse)}
	}
	if err != nil {
		return nil, ending{kind: endFailed, err: noAnswer(err)}
	}
	r := newRun(s, conn, a, w, replaces)
	work, giveUp := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.do(work) }()
	limit := time.NewTimer(a.Kind.Timeout + s.timing.HangWithin)
	defer limit.Stop()
	select {
	case err = <-done:
	case <-limit.C:
		waits := s.commitWaits(ctx, r.session)
		select {
		case err = <-done:
		default:
			if waits {
				s.left.Go(func() { s.waitOn(ctx, r, done, giveUp) })
				return r, ending{kind: endWaiting, err: postgres.ErrUnconfirmed}
			}
			giveUp()
			if err = <-done; err != nil {
				err = fmt.Errorf("%w: %w", errOverdue, err)
			}
		}
	}
	giveUp()
	f := failure{err: err, at: r.at, sent: r.sent, lost: conn.Conn().IsClosed()}
	s.release(ctx, r, err)
	if err == nil {
		return r, ending{kind: endCommitted}
	}
	return r, f.ending()
}

// commitWaits says of a local transaction that has reached its limit whether its COMMIT may be at work, waiting for
// standbys that do not confirm it, or for a database that does not answer at all.
func (s *Runner) commitWaits(ctx context.Context, session *sessions.Session) bool {
	if !session.CommitRuns() {
		return false
	}
	waits, err := s.db.Confirming(ctx)
	if err == nil && !waits { // then it is not COMMIT that takes so long
		session.CommitEnded()
	}
	return err != nil
}

// commitLook is how often it is looked whether a COMMIT is still worth waiting for.
const commitLook = time.Second

// waitOn waits for COMMIT after the request was answered "unknown". It occupies its connection and its slot meanwhile, so that
// no more transactions wait than may run. When a later write was confirmed and no answer came for a while after that, the
// connection is dead.
func (s *Runner) waitOn(ctx context.Context, r *run, done <-chan error, giveUp context.CancelFunc) {
	defer giveUp()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	tick := time.NewTicker(commitLook)
	defer tick.Stop()
	confirmed := false
	for {
		select {
		case err := <-done:
			s.release(context.WithoutCancel(ctx), r, err)
			return
		case <-s.closing.Done():
			giveUp()
			s.release(context.WithoutCancel(ctx), r, <-done)
			return
		case <-tick.C:
		}
		if confirmed {
			giveUp()
		}
		_, err := s.db.Confirming(ctx)
		confirmed = err == nil
	}
}

var errAllInUse = errors.New("all connections for local transactions are in use")

// acquire returns a connection, and takes a slot with it.
func (s *Runner) acquire(ctx context.Context, timeout time.Duration) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, errAllInUse
	}
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		<-s.slots
		return nil, fmt.Errorf("acquiring a connection: %w", err)
	}
	return conn, nil
}

// release gives the connection and the slot back.
func (s *Runner) release(ctx context.Context, r *run, err error) {
	defer func() { <-s.slots }()
	if conn := r.conn.Conn(); conn.IsClosed() {
		// pgx would let it wait for the answer of a server that was not told to stop, and may still try to tell it.
		_ = conn.PgConn().Conn().Close()
	} else {
		r.session.CommitEnded()
	}
	if err != nil {
		r.reset.Rollback(ctx, r.conn)
	} else {
		r.reset.Release(ctx, r.conn)
	}
}
