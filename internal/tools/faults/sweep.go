package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sweep is the last count, over all rounds and without package verify: how often each id is visible, and which ids have
// committed, by the service's row and by the business row. It also sees messages that became visible after the check of
// their round.
type Sweep struct {
	Committed int `json:"committed"`
	Visible   int `json:"visible"`
	Lost      int `json:"lost"`
	Doubled   int `json:"doubled"`
	Ghost     int `json:"ghost"`
	Torn      int `json:"torn"` // business rows without a committed transaction, or the other way round
}

// String is for people.
func (s Sweep) String() string {
	return fmt.Sprintf("committed %d, visible %d, lost %d, doubled %d, ghost %d, torn %d", s.Committed, s.Visible, s.Lost, s.Doubled, s.Ghost, s.Torn)
}

// sweepLimit is for reading a million messages.
const sweepLimit = 10 * time.Minute

func (w *world) sweep(ctx context.Context, result *Result) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	copies := make(map[string]int)
	for _, topic := range topics() {
		if err := w.count(ctx, topic, copies); err != nil {
			return fmt.Errorf("reading topic %s once more: %w", topic, err)
		}
	}
	s := Sweep{}
	for _, k := range kinds {
		if err := w.compare(ctx, k, copies, &s, result); err != nil {
			return fmt.Errorf("comparing kind %s once more: %w", k.name, err)
		}
	}
	for id, n := range copies {
		s.Visible += n
		result.find("sweep: %s is visible %d times and has not committed", id, n)
		s.Ghost++
	}
	result.Sweep = s
	return nil
}

func (r *Result) find(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
}

// compare compares the kind's rows with copies, and removes their ids from it.
func (w *world) compare(ctx context.Context, k kind, copies map[string]int, s *Sweep, result *Result) error {
	table := k.table
	if table == "" {
		table = "orders"
	}
	rows, err := w.db.Query(ctx, `SELECT coalesce(t.id, b.id), t.id IS NOT NULL, b.id IS NOT NULL
		FROM (SELECT id FROM txsvc.transactions WHERE kind = $1 AND state = 'committed') t FULL JOIN public.`+table+` b ON b.id = t.id`, k.name)
	if err != nil {
		return err
	}
	var id string
	var committed, business bool
	_, err = pgx.ForEachRow(rows, []any{&id, &committed, &business}, func() error {
		if committed != business {
			s.Torn++
			result.find("sweep: %s: transaction committed %t, business row there %t", id, committed, business)
		}
		if !committed {
			return nil
		}
		s.Committed++
		n := copies[id]
		s.Visible += n
		delete(copies, id)
		switch {
		case n == 0:
			s.Lost++
			result.find("sweep: %s has committed and is not visible", id)
		case n > 1:
			s.Doubled++
			result.find("sweep: %s is visible %d times", id, n)
		}
		return nil
	})
	return err
}

// count reads a topic from its beginning.
func (w *world) count(ctx context.Context, topic string, copies map[string]int) error {
	route, err := w.mq.RefreshRoute(ctx, topic)
	if err != nil {
		return err
	}
	for _, q := range route.Queues {
		for id := range q.Read {
			if err := w.countQueue(ctx, q.Broker, topic, id, copies); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) countQueue(ctx context.Context, broker, topic string, id int, copies map[string]int) error {
	end, err := w.mq.MaxOffset(ctx, broker, topic, id)
	if err != nil {
		return err
	}
	const batch = 256
	for offset := int64(0); offset < end; {
		result, err := w.mq.Pull(ctx, broker, "faults-reader", topic, id, offset, batch, 0)
		if err != nil {
			return err
		}
		if result.NextOffset <= offset {
			return errors.New("a queue ends before its end")
		}
		for _, m := range result.Messages {
			copies[m.Properties.Get("TX_ID")]++
		}
		offset = result.NextOffset
	}
	return nil
}
