package database

import (
	"context"
	"errors"
	"time"

	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// hangTimeout is how long after a kind's timeout a server that says nothing is given up; settleTimeout bounds the look at what
// became of a COMMIT that was not answered.
const (
	hangTimeout   = 2 * time.Second
	settleTimeout = 2 * time.Second
)

// Steps is the Local of a kind whose local transaction needs its client for each step, as a Go handler does: when the client
// is gone, no COMMIT comes.
const Steps = "handler"

// Run runs the local transaction of the attempt; see txn.Store.
func (s *Store) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o, again := s.runOnce(ctx, a, false)
	for again {
		o, again = s.runOnce(ctx, a, true)
	}
	return o
}

// ran is what the server has answered.
type ran struct {
	row  Row
	head bool
	err  error
}

func (s *Store) runOnce(ctx context.Context, a *txn.Attempt, reopens bool) (o txn.Outcome, again bool) {
	roll := s.w.Roll(s.life.Name, "run", a.Request.ID)
	faulty := roll.Chance(s.d.config.Faults) && !s.w.IsCalm()
	fate := roll.Below(3)
	if !s.life.Pass(a.Request.ID) || faulty && fate == 0 {
		world.Sleep(ctx, roll.Within(usual))
		s.life.Pass(a.Request.ID)
		return unavailable(away()), false
	}
	begun := time.Now()
	answers, cut := make(chan ran, 1), make(chan struct{})
	defer close(cut)
	commit := make(chan last, 1) // in steps: the client's row and COMMIT
	e := s.era()
	w := s.d.workOf(a, roll)
	sent := a.Kind.Local != Steps && !reopens
	if sent {
		commit <- s.last(a, reopens)
	}
	s.w.After(w.arrives, func() { s.serve(a, !sent, w, cut, commit, answers) })
	limit := time.NewTimer(a.Kind.Timeout + hangTimeout)
	defer limit.Stop()
	var broken <-chan time.Time
	if faulty {
		timer := time.NewTimer(roll.Within(2 * w.takes))
		defer timer.Stop()
		broken = timer.C
	}
	lease := txn.Lease{ID: a.Request.ID, Epoch: 1, WriteBefore: begun.Add(s.d.config.Timing.WriteWithin)}
	for {
		var answer ran
		select {
		case answer = <-answers:
			if !sent && answer.err == nil { // the body is done: COMMIT
				if !s.life.Pass(a.Request.ID) {
					return unavailable(away()), false
				}
				sent = true
				lease.WriteBefore = time.Now().Add(s.d.config.Timing.WriteWithin)
				commit <- s.last(a, reopens)
				continue
			}
		case <-broken:
			s.w.Trace(s.life.Name, "Run %s %s: the connection breaks", a.Request.ID, a.Half.UniqKey)
			answer.err = away()
		case <-e.over:
			answer.err = away()
		case <-limit.C:
			answer.err = away()
		case <-s.life.Dead():
		}
		if !s.life.Pass(a.Request.ID) {
			return unavailable(away()), false
		}
		o, again = s.judge(ctx, a, answer, sent, lease)
		if s.w.Tracing() {
			s.w.Trace(s.life.Name, "Run %s %s: %d, %v", a.Request.ID, a.Half.UniqKey, o.Kind, o.Err)
		}
		return o, again
	}
}

func (s *Store) era() *era {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.era
}

// last decides how the row of an attempt is written.
func (s *Store) last(a *txn.Attempt, reopens bool) last {
	if reopens {
		s.Explicit(a.CreatedAt)
	}
	return last{reopens: reopens, tracked: !reopens && s.tracks(a)}
}

// serve is the server's side.
func (s *Store) serve(a *txn.Attempt, inSteps bool, w work, cut <-chan struct{}, commit <-chan last, answers chan<- ran) {
	t, err := s.d.open(a)
	if err != nil {
		return // the client sees the era end, or gives up
	}
	if err = t.begin(); err == nil {
		err = t.body(w)
	}
	if err == nil && inSteps {
		err = t.await(w, cut, commit, answers, s.life)
	} else if err == nil {
		err = t.write(<-commit)
	}
	if err == nil {
		err = t.sync(w)
	}
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		t.abort()
		s.answer(answers, ran{err: err}, w.back)
		return
	}
	time.Sleep(w.back)
	s.d.mu.Lock()
	before := s.d.ahead(&t.row)
	s.d.mu.Unlock()
	head := true
	for _, r := range before {
		head = head && !s.markOf(r.ID).IsZero()
	}
	s.answer(answers, ran{row: t.row, head: head}, w.back)
}

func (s *Store) answer(answers chan<- ran, r ran, back time.Duration) {
	if errors.Is(r.err, errCrashed) {
		return
	}
	time.Sleep(back)
	select {
	case answers <- r:
	default: // the client gave up
	}
}

// await waits for the client's row and COMMIT, not for ever.
func (s *session) await(w work, cut <-chan struct{}, commit <-chan last, answers chan<- ran, client *world.Life) error {
	time.Sleep(w.back)
	answers <- ran{}
	idle := time.NewTimer(s.a.Kind.Timeout + hangTimeout)
	defer idle.Stop()
	select {
	case l := <-commit:
		time.Sleep(w.arrives)
		return s.write(l)
	case <-cut:
	case <-client.Dead():
	case <-idle.C:
	case <-s.e.over:
		return errCrashed
	}
	time.Sleep(w.back)
	return errTimeout
}

func unavailable(err error) txn.Outcome {
	return txn.Outcome{Kind: txn.OutcomeFailed, Err: txn.DatabaseUnavailable(err, "the database did not answer; nothing was changed")}
}

// judge says what came of a run.
func (s *Store) judge(ctx context.Context, a *txn.Attempt, r ran, sent bool, lease txn.Lease) (o txn.Outcome, again bool) {
	rejection, rejected := errors.AsType[*txn.Rejection](r.err)
	switch {
	case r.err == nil:
		t := r.row.Transaction
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: &t, Lease: lease, Head: r.head, Tracked: r.row.Tracked}, false
	case rejected:
		return s.refuse(ctx, a, rejection), false
	case errors.Is(r.err, errTaken):
		return s.taken(ctx, a)
	case errors.Is(r.err, errFenced):
		o, again := s.taken(ctx, a)
		if again {
			return unavailable(r.err), false
		}
		return o, false
	case errors.Is(r.err, errTimeout): // of a statement; another attempt with the id may be the cause
		if o, _ := s.taken(ctx, a); o.Kind == txn.OutcomeTaken {
			return o, false
		}
		return unavailable(r.err), false
	case !sent:
		return unavailable(r.err), false
	default:
		return s.settle(ctx, a, r.err, lease), false
	}
}

func (s *Store) taken(ctx context.Context, a *txn.Attempt) (o txn.Outcome, again bool) {
	t, err := s.Find(ctx, a.Request.ID)
	switch {
	case err != nil:
		return unavailable(err), false
	case t.Abandoned:
		return unavailable(errFenced), true
	default:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}, false
	}
}

// refuse stores a rejection, unless another attempt was decided meanwhile.
func (s *Store) refuse(ctx context.Context, a *txn.Attempt, rejection *txn.Rejection) txn.Outcome {
	stored, err := transaction(ctx, s, "refuse", a.Request.ID, func() (*txn.Transaction, error) {
		e := s.era()
		if err := s.d.take(e, e.keys, a.Request.ID, statementTimeout); err != nil {
			return nil, err
		}
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		defer release(e.keys, a.Request.ID)
		if r := s.d.rows[a.Request.ID]; r != nil && !r.Abandoned {
			return nil, nil
		}
		row := rowOf(a, txn.StateRolledBack)
		row.Rejection = rejection
		s.d.rows[a.Request.ID] = &row
		s.d.forced()
		t := row.Transaction
		return &t, nil
	})
	switch {
	case err != nil:
		return unavailable(err)
	case stored == nil:
		o, _ := s.taken(ctx, a)
		return o
	default:
		return txn.Outcome{Kind: txn.OutcomeRejected, Transaction: stored}
	}
}

// settle tries to find out at once whether a transaction whose COMMIT was not answered did commit.
func (s *Store) settle(ctx context.Context, a *txn.Attempt, cause error, lease txn.Lease) txn.Outcome {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	resolution, t, err := s.Decide(ctx, a.Message, a.Half)
	switch {
	case err != nil || resolution == txn.ResolutionUndecided:
		return txn.Outcome{Kind: txn.OutcomeUnknown, Err: cause}
	case resolution == txn.ResolutionCommit, resolution == txn.ResolutionDelivered:
		return txn.Outcome{Kind: txn.OutcomeCommitted, Transaction: t, Lease: lease}
	case !t.Abandoned:
		return txn.Outcome{Kind: txn.OutcomeTaken, Transaction: t}
	default:
		return unavailable(cause)
	}
}

// AwaitHead waits until nothing is pending ahead; see txn.Store.
func (s *Store) AwaitHead(ctx context.Context, t *txn.Transaction) bool {
	type looked struct {
		ids  []string
		soon bool
	}
	for look := 2 * time.Millisecond; ; look = min(look*3/2, 20*time.Millisecond) {
		l, err := statement(ctx, s, "ahead", t.ID, func() looked {
			l := looked{soon: true}
			if r := s.d.rows[t.ID]; r != nil {
				for _, other := range s.d.ahead(r) {
					l.ids = append(l.ids, other.ID)
					l.soon = l.soon && other.Attempts == 0 && other.Lease.After(s.d.now())
				}
			}
			return l
		})
		if err != nil {
			return false
		}
		free := true
		for _, id := range l.ids {
			free = free && !s.markOf(id).IsZero()
		}
		if free || !l.soon {
			return free
		}
		if !world.Sleep(ctx, look) {
			return false
		}
	}
}
