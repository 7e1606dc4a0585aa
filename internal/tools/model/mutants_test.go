package model

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/postgres/producers"
	"github.com/txsvc/txsvc/internal/tools/model/broker"
	"github.com/txsvc/txsvc/internal/tools/model/database"
	"github.com/txsvc/txsvc/internal/txn"
)

// rows and brokers are what a mutant changes: a part of a store or of a broker.
type (
	rows    struct{ *database.Store }
	brokers struct{ *broker.Client }
)

// mutants are services that are broken in one way each, with the promise that each breaks. The model finds each of them, or
// it would prove nothing.
var mutants = []struct {
	name, breaks string
	from         uint64 // the first schedule that is tried
	mutant       mutant
}{
	{"rolls back without a fence", "final", 1, store(func(s rows) Store { return unfenced{s} })},
	{"lets a fenced attempt take the row", "final", 900, breaks(func(b *database.Broken) { b.Fence = true })},
	{"claims what another holds", "once", 1, breaks(func(b *database.Broken) { b.Lease = true })},
	{"gives requests no lease", "once", 900, breaks(func(b *database.Broken) { b.FirstLease = true })},
	{"takes all for settled", "once", 1, func(_ *model, s *database.Store, c *broker.Client) parts { return parts{s, c, settled{}} }},
	{"does not look whether a message is visible", "once", 1, mq(func(b brokers) Broker { return blind{b} })},
	{"takes a missing reply for a request that was not sent", "once", 1, mq(func(b brokers) Broker { return hasty{b} })},
	{"writes when its lease is over", "once", 900, mq(func(b brokers) Broker { return late{b} })},
	{"marks a message delivered before the answer to END_TRANSACTION", "truthful", 1, func(_ *model, s *database.Store, c *broker.Client) parts {
		return parts{store: s, broker: early{brokers{c}, s}}
	}},
	{"compares no fingerprints", "idempotent", 1, store(func(s rows) Store { return forgetful{s} })},
	{"calls an unknown COMMIT committed", "truthful", 1, store(func(s rows) Store { return hopeful{s} })},
	{"aborts after an unknown COMMIT", "final", 200, store(func(s rows) Store { return rash{s} })},
	{"rolls back what is committed", "final", 1, store(func(s rows) Store { return confused{s} })},
	{"takes each row for the head of its line", "ordered", 200, store(func(s rows) Store { return pushy{s} })},
	{"claims lines with gaps", "ordered", 1, breaks(func(b *database.Broken) { b.Gaps = true })},
	{"answers check-backs out of order", "ordered", 900, breaks(func(b *database.Broken) { b.Ahead = true })},
	{"takes places in line without a lock", "ordered", 1, breaks(func(b *database.Broken) { b.LineLock = true })},

	{"does not wait for attempts under way with its watermark", "truthful", 1, processes(func(db producers.Database) producers.Database { return rushed{db} })},
	{"settles what it has to hand over", "nothing lost", 1, store(func(s rows) Store { return careless{s} })},
	{"adopts before a lease has passed", "once", 1700, breaks(func(b *database.Broken) { b.Adopt = true })},
	{"looks once for what a process left", "nothing lost", 1, processes(func(db producers.Database) producers.Database {
		return once{db, make(map[string]bool)}
	})},
	{"tracks rows beyond the ceiling", "truthful", 1, breaks(func(b *database.Broken) { b.Ceiling = true })},
	{"tracks rows that the watermark has passed", "truthful", 1, breaks(func(b *database.Broken) { b.Mark = true })},
	{"takes a flush without an answer for written", "nothing lost", 1, processes(func(db producers.Database) producers.Database { return sure{db} })},
	{"passes what a crash has undone", "nothing lost", 1, processes(func(db producers.Database) producers.Database { return quick{db} })},
	{"forgets a row whose lease was not renewed", "nothing lost", 1400, store(func(s rows) Store { return forgets{s, new(sync.Map)} })},
}

func store(change func(s rows) Store) mutant {
	return func(_ *model, s *database.Store, c *broker.Client) parts {
		return parts{store: change(rows{s}), broker: c}
	}
}

func mq(change func(b brokers) Broker) mutant {
	return func(_ *model, s *database.Store, c *broker.Client) parts {
		return parts{store: s, broker: change(brokers{c})}
	}
}

func processes(change func(db producers.Database) producers.Database) mutant {
	return func(_ *model, s *database.Store, c *broker.Client) parts {
		s.Through(change)
		return parts{store: s, broker: c}
	}
}

func breaks(what func(b *database.Broken)) mutant {
	return func(m *model, s *database.Store, c *broker.Client) parts {
		if m.started == 1 { // later ones start while the others read it
			what(m.database.Break())
		}
		return parts{store: s, broker: c}
	}
}

// within is how many schedules it takes at most until a mutant is found; most take some dozens.
const within = 5000

func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := m.from; seed < m.from+within; seed++ {
				r := run(t, seed, false, m.mutant)
				i := slices.IndexFunc(r.Violations, func(v string) bool { return strings.HasPrefix(v, m.breaks+":") })
				if i >= 0 {
					t.Logf("found after %d schedules, by seed %d: %s", seed-m.from+1, seed, r.Violations[i])
					return
				}
			}
			t.Errorf("not found in %d schedules", within)
		})
	}
}

// unfenced answers "rollback" for an id without a row, and writes nothing down.
type unfenced struct{ rows }

func (s unfenced) Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error) {
	t, err := s.Find(ctx, m.TxID)
	if errors.Is(err, txn.ErrNotFound) {
		return txn.ResolutionRollback, &txn.Transaction{ID: m.TxID, Abandoned: true, State: txn.StateRolledBack}, nil
	}
	if err != nil || t.Abandoned {
		return txn.ResolutionUndecided, t, err
	}
	return s.rows.Decide(ctx, m, h)
}

// settled knows at once.
type settled struct{}

func (settled) Settled(string, string, time.Time) (time.Duration, bool) { return 0, true }

func (settled) Indexed(string) bool { return true }

// blind never finds a message.
type blind struct{ brokers }

func (b blind) Visible(ctx context.Context, m txn.Message, first int64, since time.Time, indexed bool) (int, error) {
	_, err := b.brokers.Visible(ctx, m, first, since, indexed)
	return 0, err
}

// hasty takes silence for "not sent".
type hasty struct{ brokers }

func (b hasty) End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error {
	return broker.NotSent(b.brokers.End(ctx, h, d, writeBefore))
}

func (b hasty) Send(ctx context.Context, m txn.Message, writeBefore time.Time) error {
	return broker.NotSent(b.brokers.Send(ctx, m, writeBefore))
}

// late writes whenever it can, also when the process was stopped meanwhile.
type late struct{ brokers }

func (b late) End(ctx context.Context, h txn.Half, d txn.Decision, _ time.Time) error {
	return b.brokers.End(context.WithoutCancel(ctx), h, d, time.Time{})
}

func (b late) Send(ctx context.Context, m txn.Message, _ time.Time) error {
	return b.brokers.Send(context.WithoutCancel(ctx), m, time.Time{})
}

func (b late) SendBatch(ctx context.Context, messages []txn.Message, _ time.Time) error {
	return b.brokers.SendBatch(context.WithoutCancel(ctx), messages, time.Time{})
}

// early marks before it knows.
type early struct {
	brokers
	store *database.Store
}

func (b early) End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error {
	if id := b.TxID(h); d == txn.DecisionCommit && id != "" {
		b.store.MarkDelivered(id, time.Now(), false)
	}
	return b.brokers.End(ctx, h, d, writeBefore)
}

// forgetful takes each request with an id for the same.
type forgetful struct {
	rows
}

func (s forgetful) Find(ctx context.Context, id string) (*txn.Transaction, error) {
	t, err := s.rows.Find(ctx, id)
	if err == nil && !t.Abandoned && ctx.Value(submitting{}) != nil {
		return nil, txn.ErrNotFound // so that Run finds it
	}
	return t, err
}

func (s forgetful) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o := s.rows.Run(ctx, a)
	if o.Kind == txn.OutcomeTaken {
		t := *o.Transaction
		t.Fingerprint = a.Fingerprint
		o.Transaction = &t
	}
	return o
}

// hopeful takes silence for success.
type hopeful struct{ rows }

func (s hopeful) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o := s.rows.Run(ctx, a)
	if o.Kind == txn.OutcomeUnknown {
		o.Kind, o.Transaction = txn.OutcomeCommitted, &txn.Transaction{
			ID: a.Request.ID, Kind: a.Kind.Name, State: txn.StateCommitted, Delivery: txn.DeliveryPending, ShardKey: a.Request.ShardKey,
			Topic: a.Kind.Topic, Route: a.Route, MessageID: a.Half.UniqKey, Fingerprint: a.Fingerprint,
		}
		o.Lease = txn.Lease{ID: a.Request.ID, Epoch: 1, WriteBefore: time.Now().Add(time.Second)}
	}
	return o
}

// rash takes silence for failure.
type rash struct{ rows }

func (s rash) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o := s.rows.Run(ctx, a)
	if o.Kind == txn.OutcomeUnknown {
		o.Kind, o.Err = txn.OutcomeFailed, txn.DatabaseUnavailable(o.Err, "the database did not answer; nothing was changed")
	}
	return o
}

// confused answers "rollback" when it should answer "commit".
type confused struct{ rows }

func (s confused) Decide(ctx context.Context, m txn.Message, h txn.Half) (txn.Resolution, *txn.Transaction, error) {
	r, t, err := s.rows.Decide(ctx, m, h)
	if r == txn.ResolutionCommit && ctx.Value(submitting{}) == nil {
		r = txn.ResolutionRollback
	}
	return r, t, err
}

// pushy waits for nobody.
type pushy struct{ rows }

func (s pushy) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	o := s.rows.Run(ctx, a)
	o.Head = true
	return o
}

// rushed calls all visible that began before a flush.
type rushed struct{ producers.Database }

func (r rushed) Write(ctx context.Context, prefix string, w producers.Watermark) (bool, error) {
	if w.Ceiling.After(w.VisibleBefore) {
		w.VisibleBefore = w.Ceiling.Add(-time.Second)
	}
	return r.Database.Write(ctx, prefix, w)
}

// careless takes silence for success, as far as the row is concerned.
type careless struct{ rows }

func (s careless) HandOver(began time.Time) { s.Settle(began) }

// once does not look again.
type once struct {
	producers.Database
	looked map[string]bool
}

func (o once) Silent(ctx context.Context) (gone []string, err error) {
	all, err := o.Database.Silent(ctx)
	for _, prefix := range all {
		if !o.looked[prefix] {
			o.looked[prefix] = true
			gone = append(gone, prefix)
		}
	}
	return gone, err
}

// sure does not mind a missing answer.
type sure struct{ producers.Database }

func (s sure) Write(ctx context.Context, prefix string, w producers.Watermark) (bool, error) {
	if tracks, err := s.Database.Write(ctx, prefix, w); err == nil {
		return tracks, nil
	}
	return true, nil
}

// quick never waits for the disk, and does not look whether the flush before is there still.
type quick struct{ producers.Database }

func (q quick) Write(ctx context.Context, prefix string, w producers.Watermark) (bool, error) {
	w.Durable, w.After = false, nil
	return q.Database.Write(ctx, prefix, w)
}

// forgets takes a row for one that says by itself what became of its message, because it tried to make it so.
type forgets struct {
	rows
	began *sync.Map // by id
}

func (s forgets) Run(ctx context.Context, a *txn.Attempt) txn.Outcome {
	s.began.Store(a.Request.ID, a.CreatedAt)
	return s.rows.Run(ctx, a)
}

func (s forgets) Renew(ctx context.Context, lease txn.Lease) (txn.Lease, bool, error) {
	lease, held, err := s.rows.Renew(ctx, lease)
	if began, ok := s.began.Load(lease.ID); ok {
		s.Settle(began.(time.Time))
	}
	return lease, held, err
}
