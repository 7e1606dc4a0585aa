package database

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// held changes a row whose lease the caller has; the caller of the returned function holds the mutex.
func (s *Store) held(lease txn.Lease, change func(r *Row)) func() bool {
	return func() bool {
		r := s.d.rows[lease.ID]
		if r == nil || !r.held() || r.Epoch != lease.Epoch {
			return false
		}
		r.explicit()
		change(r)
		s.d.forced()
		return true
	}
}

// Renew extends a lease; see txn.Store.
func (s *Store) Renew(ctx context.Context, lease txn.Lease) (txn.Lease, bool, error) {
	start := time.Now()
	ok, err := statement(ctx, s, "renew", lease.ID, func() bool {
		r := s.d.rows[lease.ID]
		if r == nil || !r.held() || r.Epoch != lease.Epoch || !r.Lease.After(s.d.now()) {
			return false
		}
		r.Tracked = false
		r.Lease = s.d.now().Add(s.d.config.Timing.Lease())
		s.d.forced()
		return true
	})
	if ok {
		s.HandOverRow(lease.ID)
	}
	lease.WriteBefore = start.Add(s.d.config.Timing.WriteWithin)
	return lease, ok, err
}

// Release gives a lease back; see txn.Store.
func (s *Store) Release(ctx context.Context, lease txn.Lease) error {
	return s.Defer(ctx, lease, 0, "")
}

// Defer gives a lease back and keeps others from the row for a while; see delivery.
func (s *Store) Defer(ctx context.Context, lease txn.Lease, wait time.Duration, reason string) error {
	_, err := statement(ctx, s, "defer", lease.ID, s.held(lease, func(r *Row) { r.Lease, r.PendingReason = s.d.now().Add(wait), reason }))
	s.over(lease)
	return err
}

// GiveBack is Defer for leases of which nothing was sent; see delivery.
func (s *Store) GiveBack(ctx context.Context, leases []txn.Lease, wait time.Duration, reason string) error {
	leases = slices.Clone(leases)
	_, err := statement(ctx, s, "give back", leases[0].ID, func() struct{} {
		for _, lease := range leases {
			s.held(lease, func(r *Row) {
				r.Lease, r.PendingReason = s.d.now().Add(wait), cmp.Or(reason, r.PendingReason)
				r.Attempts = max(r.Attempts-1, 0)
			})()
		}
		return struct{}{}
	})
	s.over(leases...)
	return err
}

// Park keeps everybody from the row, until Redeliver; see delivery.
func (s *Store) Park(ctx context.Context, lease txn.Lease, reason string) error {
	_, err := statement(ctx, s, "park", lease.ID, s.held(lease, func(r *Row) { r.Parked, r.PendingReason = true, reason }))
	s.over(lease)
	return err
}

// Reroute gives a pending row another queue and UNIQ_KEY; see delivery.
func (s *Store) Reroute(ctx context.Context, lease txn.Lease, route txn.Route, uniqKey, reason string) (bool, error) {
	ok, err := statement(ctx, s, "reroute", lease.ID, s.held(lease, func(r *Row) {
		r.Route, r.MessageID, r.Outbox, r.Attempts, r.Lease, r.PendingReason = route, uniqKey, true, 0, s.d.now(), reason
		r.Half = txn.Half{UniqKey: uniqKey, Broker: route.Queue.Broker, CommitLogOffset: txn.NoHalf, QueueOffset: txn.NoHalf}
		r.Message.UniqKey, r.Message.Queue = uniqKey, route.Queue
		s.d.watch.Rerouted(*r)
	}))
	s.over(lease)
	return ok, err
}

// over ends the tracking of rows whose leases were to end.
func (s *Store) over(leases ...txn.Lease) {
	for _, lease := range leases {
		s.HandOverRow(lease.ID)
	}
}

// claimed is what a claim's statement returns.
type claimed struct {
	claim   txn.Claim
	freeFor time.Duration
}

// claim leases rows; the caller of the returned function holds the mutex.
func (s *Store) claim(ctx context.Context, about string, find func() []*Row) ([]txn.Claim, error) {
	start := time.Now()
	found, err := statement(ctx, s, "claim", about, func() (list []claimed) {
		for _, r := range find() {
			freeFor := s.d.now().Sub(r.Lease)
			if s.d.broken.Lease {
				freeFor = time.Hour // as if there had never been one
			}
			r.Tracked = false
			r.Lease, r.Epoch, r.Attempts = s.d.now().Add(s.d.config.Timing.Lease()), r.Epoch+1, r.Attempts+1
			c := txn.Claim{
				Lease: txn.Lease{ID: r.ID, Epoch: r.Epoch}, Half: r.Half, Message: r.Message, Outbox: r.Outbox, Ordered: r.Ordered,
				Line: r.Line, First: r.Half.CommitLogOffset, CreatedAt: r.CreatedAt, Attempts: r.Attempts,
			}
			c.Half.FromCheck = true
			list = append(list, claimed{c, freeFor})
			if s.w.Tracing() {
				s.w.Trace(s.life.Name, "claims %s, attempt %d", r.ID, r.Attempts)
			}
		}
		if list != nil {
			s.d.forced()
		}
		return list
	})
	if err != nil {
		return nil, err
	}
	claims := make([]txn.Claim, len(found))
	for i, c := range found {
		claims[i] = c.claim
		claims[i].Lease.WriteBefore = start.Add(s.d.config.Timing.WriteWithin)
		claims[i].FreeSince = time.Now().Add(-c.freeFor)
	}
	return claims, nil
}

// byDue returns rows in the order in which they have waited.
func byDue(rows []*Row, limit int) []*Row {
	slices.SortStableFunc(rows, func(a, b *Row) int { return a.Lease.Compare(b.Lease) })
	return rows[:min(len(rows), limit)]
}

func (d *Database) where(holds func(r *Row) bool) (rows []*Row) {
	for _, r := range d.sorted() {
		if holds(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// ClaimDue leases rows that have a half message and no line; see delivery.
func (s *Store) ClaimDue(ctx context.Context, brokers []string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, "due", func() []*Row {
		return byDue(s.d.where(func(r *Row) bool {
			return s.d.due(r) && !r.Ordered && !r.Outbox && slices.Contains(brokers, r.Route.Queue.Broker)
		}), limit)
	})
}

// ClaimOne leases the row of the half message, unless somebody works on it or on one before it; see delivery.
func (s *Store) ClaimOne(ctx context.Context, id, uniqKey string) (txn.Claim, bool, error) {
	claims, err := s.claim(ctx, id, func() []*Row {
		return s.d.where(func(r *Row) bool {
			return r.ID == id && r.MessageID == uniqKey && s.d.free(r) && (s.d.broken.Ahead || !r.Ordered || len(s.d.ahead(r)) == 0)
		})
	})
	if err != nil || len(claims) == 0 {
		return txn.Claim{}, false, err
	}
	return claims[0], true, nil
}

// ClaimOutbox leases rows without a half message that stand in no line; see delivery.
func (s *Store) ClaimOutbox(ctx context.Context, broker, topic string, limit int) ([]txn.Claim, error) {
	return s.claim(ctx, "outbox "+broker, func() []*Row {
		return byDue(s.d.where(func(r *Row) bool {
			return s.d.due(r) && !r.Ordered && r.Outbox && r.Route.Queue.Broker == broker && r.Topic == topic
		}), limit)
	})
}

// lineOf returns the pending rows of a line, in order.
func (d *Database) lineOf(topic, shardKey string) []*Row {
	rows := d.where(func(r *Row) bool { return r.Ordered && r.pending() && r.Topic == topic && r.ShardKey == shardKey })
	slices.SortFunc(rows, func(a, b *Row) int { return int(a.Line - b.Line) })
	return rows
}

// ClaimLines leases the heads of lines with those behind them, without a gap; see delivery.
func (s *Store) ClaimLines(ctx context.Context, topic string, shardKeys, brokers []string, limit int) ([]txn.Claim, error) {
	keys := slices.Clone(shardKeys)
	slices.Sort(keys)
	return s.claim(ctx, "lines", func() (rows []*Row) {
		for _, key := range keys {
			line := s.d.lineOf(topic, key)
			for _, r := range line[:min(len(line), limit)] {
				if s.d.due(r) && slices.Contains(brokers, r.Route.Queue.Broker) {
					rows = append(rows, r)
				} else if !s.d.broken.Gaps {
					break
				}
			}
		}
		return rows
	})
}

// DueLines looks at lines; see delivery.
func (s *Store) DueLines(ctx context.Context, topic, after string, brokers []string, limit int) ([]string, string, error) {
	type looked struct {
		due  []string
		last string
	}
	l, err := statement(ctx, s, "lines", topic, func() (l looked) {
		keys := make(map[string]bool)
		for _, r := range s.d.rows {
			if r.Ordered && r.pending() && r.Topic == topic && r.ShardKey > after {
				keys[r.ShardKey] = true
			}
		}
		seen := 0
		for _, key := range sortedKeys(keys) {
			if seen++; seen > limit {
				break
			}
			l.last = key
			if head := s.d.lineOf(topic, key)[0]; s.d.broken.Gaps || s.d.due(head) && slices.Contains(brokers, head.Route.Queue.Broker) {
				l.due = append(l.due, key)
			}
		}
		if seen < limit {
			l.last = ""
		}
		return l
	})
	return l.due, l.last, err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Groups returns what is pending without half messages, and in lines; see delivery.
func (s *Store) Groups(ctx context.Context) ([]txn.Group, error) {
	return statement(ctx, s, "groups", "", func() (groups []txn.Group) {
		for _, r := range s.d.rows {
			var g txn.Group
			switch {
			case r.pending() && r.Ordered:
				g = txn.Group{Topic: r.Topic}
			case r.pending() && r.Outbox:
				g = txn.Group{Broker: r.Route.Queue.Broker, Topic: r.Topic}
			default:
				continue
			}
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		slices.SortFunc(groups, func(a, b txn.Group) int { return strings.Compare(a.Broker+a.Topic, b.Broker+b.Topic) })
		return groups
	})
}
