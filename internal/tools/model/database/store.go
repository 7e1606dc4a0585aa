package database

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

// Store is a process's connections to the database; see txn.Store and the ports of delivery. It is safe for concurrent use.
type Store struct {
	*producers.Producers

	d    *Database
	w    *world.World
	life *world.Life

	mu       sync.Mutex
	marks    map[string]time.Time
	flushing bool
}

// Connect returns the connections of a new process. KeepTrack has to run for its rows to be tracked.
func (d *Database) Connect(life *world.Life) *Store {
	s := &Store{d: d, w: d.w, life: life, marks: make(map[string]time.Time)}
	s.Through(func(db producers.Database) producers.Database { return db })
	return s
}

// Through lets the process reach the table of processes through something else, before it is used.
func (s *Store) Through(change func(producers.Database) producers.Database) {
	s.Producers = producers.On(change(table{s}), producers.NewSelf(), slog.New(slog.DiscardHandler))
}

const usual = time.Millisecond

var errAway = errors.New("the database did not answer")

func away() error { return errAway }

// statement executes one statement in one moment, while it holds the database's mutex. An error says that it may not have been
// executed, or may still be: it is bound to the caller's variables by its result only.
func statement[T any](ctx context.Context, s *Store, what, about string, execute func() T) (T, error) {
	var none T
	if !s.life.Pass(what + about) {
		return none, away()
	}
	roll := s.w.Roll(s.life.Name, what, about)
	faulty := roll.Chance(s.d.config.Faults) && !s.w.IsCalm()
	fate := roll.Below(4)
	way, back := roll.Within(usual), roll.Within(usual)
	switch {
	case !faulty:
	case fate == 0: // nothing arrives
		world.Sleep(ctx, roll.Within(time.Second))
		s.life.Pass(what + about)
		return none, away()
	case fate == 1: // it is executed after the connection has broken
		s.w.Trace(s.life.Name, "%s %s: executed later, for nobody", what, about)
		s.w.After(roll.Within(statementTimeout), func() { s.run(func() { execute() }) })
		world.Sleep(ctx, way)
		s.life.Pass(what + about)
		return none, away()
	case fate == 2: // its answer is lost
		s.w.Trace(s.life.Name, "%s %s: the answer is lost", what, about)
		s.w.After(way, func() { s.run(func() { execute() }) })
		world.Sleep(ctx, way+back)
		s.life.Pass(what + about)
		return none, away()
	default: // it takes its time
		way = roll.Within(time.Second)
	}
	if !world.Sleep(ctx, way) {
		return none, away()
	}
	var result T
	if !s.run(func() { result = execute() }) || !world.Sleep(ctx, back) || !s.life.Pass(what+about) {
		return none, away()
	}
	return result, nil
}

// transaction executes statements that wait for locks, beside the caller, who may give up, or be killed, meanwhile.
func transaction[T any](ctx context.Context, s *Store, what, about string, execute func() (T, error)) (T, error) {
	var none T
	if !s.life.Pass(what + about) {
		return none, away()
	}
	roll := s.w.Roll(s.life.Name, what, about)
	way, back := roll.Within(usual), roll.Within(usual)
	var broken <-chan time.Time
	if roll.Chance(s.d.config.Faults) && !s.w.IsCalm() {
		timer := time.NewTimer(roll.Within(2 * usual))
		defer timer.Stop()
		broken = timer.C
	}
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	s.w.After(way, func() {
		if !s.run(func() {}) {
			answers <- answer{err: away()}
			return
		}
		result, err := execute()
		time.Sleep(back)
		answers <- answer{result, err}
	})
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	a := answer{err: away()}
	select {
	case a = <-answers:
	case <-broken:
	case <-ctx.Done():
	case <-s.life.Dead():
	}
	if !s.life.Pass(what + about) {
		return none, away()
	}
	return a.result, a.err
}

// statementTimeout bounds each statement.
const statementTimeout = 5 * time.Second

func (s *Store) run(execute func()) bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.down {
		return false
	}
	execute()
	return true
}

// Find returns the row; see txn.Store.
func (s *Store) Find(ctx context.Context, id string) (*txn.Transaction, error) {
	before := s.markOf(id)
	found, err := statement(ctx, s, "find", id, func() *txn.Transaction {
		if r := s.d.rows[id]; r != nil {
			t := s.d.read(r)
			return &t
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, txn.ErrNotFound
	}
	overlay(found, before)
	overlay(found, s.markOf(id))
	return found, nil
}

func overlay(t *txn.Transaction, at time.Time) {
	if !at.IsZero() && t.Delivery == txn.DeliveryPending {
		t.Delivery, t.DeliveredAt = txn.DeliveryDelivered, at
	}
}

func (s *Store) markOf(id string) time.Time {
	if at := s.VisibleAt(id); !at.IsZero() {
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[id]
}

// MarkDelivered notes that the message is visible; see txn.Store. Marks are written together, a little later.
func (s *Store) MarkDelivered(id string, at time.Time, ordered bool) {
	if s.Delivered(id, at, s.d.config.Timing.Lease()) {
		return
	}
	wait := 10 * time.Millisecond
	if ordered {
		wait = 0
	}
	s.mu.Lock()
	s.marks[id] = at
	flushing := s.flushing
	s.flushing = true
	s.mu.Unlock()
	if !flushing || ordered {
		time.AfterFunc(wait, func() { s.flushSoon() })
	}
}

func (s *Store) flushSoon() {
	s.mu.Lock()
	s.flushing = false
	s.mu.Unlock()
	for s.FlushMarks(context.Background()) != nil && !s.life.IsDead() && !s.w.Ended() {
		time.Sleep(500 * time.Millisecond)
	}
}

// FlushMarks returns when what was marked before is in the table.
func (s *Store) FlushMarks(ctx context.Context) error {
	s.mu.Lock()
	marks := maps.Clone(s.marks)
	s.mu.Unlock()
	if len(marks) == 0 {
		return nil
	}
	if err := s.writeMarks(ctx, marks); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range marks {
		delete(s.marks, id)
	}
	return nil
}

// MarkAll is MarkDelivered for many, and returns when the table says so.
func (s *Store) MarkAll(ctx context.Context, ids []string, at time.Time) error {
	marks := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		marks[id] = at
	}
	return s.writeMarks(ctx, marks)
}

func (s *Store) writeMarks(ctx context.Context, marks map[string]time.Time) error {
	ids := slices.Sorted(maps.Keys(marks))
	_, err := statement(ctx, s, "mark", ids[0], func() struct{} {
		for _, id := range ids {
			r := s.d.rows[id]
			if r == nil || !r.pending() {
				continue
			}
			before := *r
			s.d.unflushed = append(s.d.unflushed, func() { *r = before })
			r.Delivery, r.DeliveredAt, r.Lease, r.PendingReason = txn.DeliveryDelivered, marks[id], time.Time{}, ""
			s.d.watch.Delivered(*r)
		}
		return struct{}{}
	})
	return err
}

// Decide says what a half message is to be told, fencing it when no attempt with its id was decided; see delivery.
func (s *Store) Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error) {
	t, err := s.Find(ctx, m.TxID)
	if err != nil && !errors.Is(err, txn.ErrNotFound) {
		return txn.ResolutionUndecided, nil, err
	}
	if err == nil && !t.Abandoned {
		return resolutionOf(t, h), t, nil
	}
	if !h.StoredAt.IsZero() {
		if underWay, err := s.UnderWay(ctx, h.UniqKey, h.StoredAt); underWay || err != nil {
			return txn.ResolutionUndecided, nil, err
		}
	}
	switch err := s.fence(ctx, m, h); {
	case errors.Is(err, errTimeout):
		return txn.ResolutionUndecided, nil, nil
	case err != nil:
		return txn.ResolutionUndecided, nil, err
	}
	if t, err = s.Find(ctx, m.TxID); err != nil {
		return txn.ResolutionUndecided, nil, err
	}
	return resolutionOf(t, h), t, nil
}

func resolutionOf(t *txn.Transaction, h txn.Half) txn.Resolution {
	switch {
	case t.State == txn.StateRolledBack || t.MessageID != h.UniqKey:
		return txn.ResolutionRollback
	case t.Delivery == txn.DeliveryDelivered:
		return txn.ResolutionDelivered
	default:
		return txn.ResolutionCommit
	}
}

// fenceWait is how long a fence waits for a local transaction that holds the id's key.
const fenceWait = time.Second

// fence takes the id's key, or finds it taken.
func (s *Store) fence(ctx context.Context, m txn.Message, h txn.Half) error {
	_, err := transaction(ctx, s, "fence", h.UniqKey, func() (struct{}, error) {
		e := s.era()
		if err := s.d.take(e, e.keys, m.TxID, fenceWait); err != nil {
			return struct{}{}, err
		}
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		defer release(e.keys, m.TxID)
		r := s.d.rows[m.TxID]
		switch {
		case r == nil:
			s.d.rows[m.TxID] = &Row{
				Transaction: txn.Transaction{
					ID: m.TxID, Kind: m.Kind, State: txn.StateRolledBack, Delivery: txn.DeliveryNone, ShardKey: m.ShardKey, Topic: m.Topic,
					MessageID: h.UniqKey, Abandoned: true, Route: txn.Route{Queue: m.Queue}, CreatedAt: time.Now(), DecidedAt: time.Now(),
				},
				Fenced: []string{h.UniqKey}, Epoch: 1,
			}
		case r.Abandoned && !slices.Contains(r.Fenced, h.UniqKey):
			r.Fenced = append(slices.Clone(r.Fenced), h.UniqKey)
		}
		s.d.forced()
		s.w.Trace("database", "fence on %s %s: %t", m.TxID, h.UniqKey, s.d.rows[m.TxID].Abandoned)
		return struct{}{}, nil
	})
	return err
}

// Pending counts the committed rows whose message is not known to be visible.
func (s *Store) Pending(ctx context.Context) (txn.Pending, error) {
	return statement(ctx, s, "pending", "", func() (p txn.Pending) {
		for _, r := range s.d.rows {
			if r.pending() || r.Tracked && !s.d.isVisible(r) {
				p.Count++
			}
		}
		return p
	})
}

// NoteWaiting writes why messages for the broker wait; see delivery.
func (s *Store) NoteWaiting(ctx context.Context, broker, reason string, _ int) error {
	_, err := statement(ctx, s, "note", broker, func() struct{} {
		for _, r := range s.d.rows {
			if r.pending() && r.Route.Queue.Broker == broker && r.PendingReason == "" && !r.Parked {
				r.PendingReason = reason
			}
		}
		return struct{}{}
	})
	return err
}

// Redeliver makes a parked row due; see txn.Store.
func (s *Store) Redeliver(ctx context.Context, id string) (*txn.Transaction, error) {
	if _, err := statement(ctx, s, "redeliver", id, func() struct{} {
		if r := s.d.rows[id]; r != nil && r.pending() && r.Parked {
			r.Parked, r.Lease, r.PendingReason = false, s.d.now(), ""
		}
		return struct{}{}
	}); err != nil {
		return nil, err
	}
	return s.Find(ctx, id)
}

// Notify wakes all replicas that listen. A notification can be lost with a connection.
func (s *Store) Notify(ctx context.Context) error {
	_, err := statement(ctx, s, "notify", "", func() struct{} {
		for listener, woken := range s.d.listeners {
			s.w.After(s.w.Roll(listener.life.Name, "woken", "").Within(usual), func() {
				if !listener.life.IsDead() {
					woken()
				}
			})
		}
		return struct{}{}
	})
	return err
}

// Listen calls woken when a replica notified, until ctx is done.
func (s *Store) Listen(ctx context.Context, woken func()) {
	s.d.mu.Lock()
	s.d.listeners[s] = woken
	s.d.mu.Unlock()
	<-ctx.Done()
	s.d.mu.Lock()
	delete(s.d.listeners, s)
	s.d.mu.Unlock()
}
