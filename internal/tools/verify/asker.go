package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// asker gets rows with GET when there is no database to read. It sees only transactions that were sent.
type asker struct{ run *Run }

var errNoSource = errors.New("rows cannot be read: neither a database nor a base URL is given")

// atOnce bounds the GETs at a time.
const atOnce = 16

func (a *asker) scan(ctx context.Context, handle func(*Row)) error {
	var ids []string
	a.run.journal.facts.each(func(n uint32, _ *fact) { ids = append(ids, a.run.plan.id(n)) })
	return a.find(ctx, ids, handle)
}

func (a *asker) find(ctx context.Context, ids []string, handle func(*Row)) error {
	if a.run.targets == nil {
		return errNoSource
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, rows := make(chan string), make(chan *Row)
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for id := range next {
				row, err := a.one(ctx, id)
				if err != nil {
					cancel(fmt.Errorf("asking for %s: %w", id, err))
				}
				rows <- row
			}
		})
	}
	go func() {
		defer close(next)
		for _, id := range ids {
			select {
			case next <- id:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() { group.Wait(); close(rows) }()
	for row := range rows {
		if row != nil {
			handle(row)
		}
	}
	return context.Cause(ctx)
}

// one returns nil when there is no row.
func (a *asker) one(ctx context.Context, id string) (row *Row, err error) {
	r := a.run
	err = retry(ctx, r.options.Settle, func(ctx context.Context) error {
		answer, text := r.client.get(ctx, r.targets.pick(), id)
		switch answer.Class {
		case NotFound:
			row = nil
			return nil
		case Committed, Rejected, Abandoned, Prepared, Unknown:
			row, err = rowOf(text)
			return err
		default:
			return fmt.Errorf("%s: %s", answer.Class, answer.Detail)
		}
	})
	return row, err
}

func rowOf(text []byte) (*Row, error) {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("reading a transaction: %w", err)
	}
	row := &Row{
		ID: b.ID, Kind: deref(b.Kind), State: b.State, Delivery: b.Delivery, ShardKey: deref(b.ShardKey), Topic: deref(b.Topic), Tag: deref(b.Tag),
		MessageID: deref(b.MessageID), Result: b.Result, DecidedAt: b.DecidedAt, Partial: true,
	}
	if b.Queue != nil {
		row.Broker, row.QueueID = b.Queue.Broker, b.Queue.ID
	}
	if b.Route != nil {
		row.Selector, row.Lane, row.Reason = b.Route.Selector, deref(b.Route.Lane), b.Route.Reason
	}
	if b.CreatedAt != nil {
		row.CreatedAt = *b.CreatedAt
	} else {
		row.CreatedAt = time.UnixMicro(0)
	}
	if b.Error != nil {
		row.Abandoned = b.Error.Code == "abandoned"
		row.Rejected, row.RejectHash = !row.Abandoned, rejectionHash(b.Error.Message, b.Error.Rejection)
		row.Rejection = rejectionSaid(b.Error.Message, b.Error.Rejection)
	}
	return row, nil
}

var errNotCounted = errors.New("a replica cannot read what is pending")

// pending reads the replicas' metrics, because it cannot count without the database. They count all runs.
func (a *asker) pending(ctx context.Context) (int, error) {
	r := a.run
	if r.targets == nil {
		return 0, nil
	}
	most, failed := -1.0, error(nil)
	for _, t := range r.targets.now() {
		text, err := r.client.fetch(ctx, t.url+"/metrics")
		if err != nil {
			failed = err
			continue
		}
		if metric(text, "txsvc_delivery_reading_failed") > 0 { // then there is no count
			failed = errNotCounted
			continue
		}
		most = max(most, metric(text, "txsvc_delivery_pending"))
	}
	if most < 0 {
		return 0, failed
	}
	return int(most), nil
}
