package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// driver posts the transactions of a plan.
type driver struct {
	plan    *plan
	load    *Load
	client  *client
	targets *targets
	journal *journal
	latency []*histogram // by kind

	next    atomic.Uint32 // number of the next transaction
	ended   atomic.Uint32
	refused atomic.Pointer[error]
	stop    context.CancelFunc
}

// errAnchors means that the orders which others refer to could not be posted.
var errAnchors = errors.New("not all of the first orders, to which others refer, were committed")

// run posts until the count, the duration or ctx ends. Then it finishes the open transactions: within RetryFor, or with
// their present request if ctx has ended.
func (d *driver) run(ctx context.Context) error {
	ctx, d.stop = context.WithCancel(ctx)
	defer d.stop()
	if d.plan.anchors > 0 {
		d.workers(ctx, d.plan.anchors, time.Time{})
		if err := d.failure(); err != nil {
			return err
		}
		for n := range d.plan.anchors {
			if !d.journal.observed(n, saidCommitted) && ctx.Err() == nil {
				return fmt.Errorf("%w: %s", errAnchors, d.plan.id(n))
			}
		}
	}
	last := uint32(maxCount)
	if d.load.Count > 0 {
		last = max(uint32(d.load.Count), d.plan.anchors)
	}
	until := time.Time{}
	if d.load.Duration > 0 {
		until = time.Now().Add(d.load.Duration)
	}
	d.workers(ctx, last, until)
	return d.failure()
}

func (d *driver) failure() error {
	if err := d.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// workers posts transactions up to the last number, until the time or ctx ends.
func (d *driver) workers(ctx context.Context, last uint32, until time.Time) {
	var group sync.WaitGroup
	begin, first := time.Now(), d.next.Load()
	for range d.load.Concurrency {
		group.Go(func() {
			for ctx.Err() == nil {
				n := d.next.Add(1) - 1
				if n >= last || !d.due(ctx, begin, n-first) || !until.IsZero() && time.Now().After(until) {
					return
				}
				d.transact(ctx, n)
				d.ended.Add(1)
			}
		})
	}
	group.Wait()
	d.next.Store(min(d.next.Load(), last))
}

// due waits until the transaction's time has come, if there is a rate.
func (d *driver) due(ctx context.Context, begin time.Time, index uint32) bool {
	if d.load.Rate == 0 {
		return true
	}
	at := begin.Add(time.Duration(float64(index) / d.load.Rate * float64(time.Second)))
	if wait := time.Until(at); wait > 0 {
		return pause.For(ctx, wait)
	}
	return true
}

// transact sends one transaction in the way that the plan says.
func (d *driver) transact(ctx context.Context, n uint32) {
	t := d.plan.transaction(n)
	switch t.play {
	case playDuplicate:
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { d.insist(ctx, t) })
		}
		group.Wait()
	case playHangUp:
		d.hangUp(ctx, t)
	case playMismatch:
		if d.insist(ctx, t) == Committed {
			d.insistOn(ctx, t, Other)
		}
	case playRepeat:
		d.insist(ctx, t)
		d.insist(ctx, t)
	case playRejected:
		if d.insist(ctx, t); t.dice&(1<<20) != 0 {
			d.insist(ctx, t)
		}
	case playAsk:
		d.insist(ctx, t)
		d.ask(ctx, t)
	default:
		d.insist(ctx, t)
	}
}

// longestHangUp counts from the sent request. An answer takes about as long.
const longestHangUp = 20 * time.Millisecond

// hangUp leaves before the answer. Every second time the client comes back with the same id.
func (d *driver) hangUp(ctx context.Context, t transaction) {
	a := d.once(ctx, t, Post, time.Duration(t.dice>>16%uint64(longestHangUp)))
	if a.Class != HungUp || t.dice&(1<<20) == 0 {
		d.note(t, &a)
		if a.definite() {
			return
		}
		if a.Class == HungUp {
			d.journal.gaveUp(t.n) // on purpose
			return
		}
	}
	d.insist(ctx, t)
}

func (d *driver) insist(ctx context.Context, t transaction) Class { return d.insistOn(ctx, t, Post) }

// insistOn sends the same request until it gets an answer that will not change, as a client should: to the next replica
// each time, with growing pauses. After an answer "unknown" it sends as many GETs as POSTs.
func (d *driver) insistOn(ctx context.Context, t transaction, purpose Purpose) Class {
	begin := time.Now()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		a := d.once(ctx, t, purpose, -1)
		if a.definite() {
			if purpose == Post && a.Class == Committed {
				d.latency[t.kind].add(a.Latency)
			}
			d.note(t, &a)
			return a.Class
		}
		if time.Since(begin) > d.load.RetryFor || !pause.For(ctx, pause.About(wait)) {
			if purpose == Post {
				d.journal.gaveUp(t.n)
			}
			return a.Class
		}
		if a.Class == Unknown && rand.N(2) == 0 {
			d.ask(ctx, t)
		}
	}
}

// once sends one request, and writes it with its answer into the journal.
func (d *driver) once(ctx context.Context, t transaction, purpose Purpose, hangUp time.Duration) Answer {
	to := d.target()
	clock := d.journal.sent(t.n, purpose, to.index)
	a := d.client.post(context.WithoutCancel(ctx), to, t, purpose, hangUp)
	d.journal.answered(t.n, &a, clock)
	return a
}

func (d *driver) target() *target {
	to := d.targets.pick()
	d.journal.target(to.index, to.url)
	return to
}

// ask sends one GET. Its answer counts like any other.
func (d *driver) ask(ctx context.Context, t transaction) Answer {
	to := d.target()
	clock := d.journal.sent(t.n, Get, to.index)
	a, _ := d.client.get(context.WithoutCancel(ctx), to, d.plan.id(t.n))
	d.journal.answered(t.n, &a, clock)
	return a
}

// note stops the load when the service refuses the requests as wrong, because then the load makes no sense.
func (d *driver) note(t transaction, a *Answer) {
	if a.Class != Refused && a.Class != Malformed {
		return
	}
	err := fmt.Errorf("kind %s: %s was answered %d %s", d.plan.kinds[t.kind].Name, d.plan.id(t.n), a.Status, a.Detail)
	if d.refused.CompareAndSwap(nil, &err) {
		d.stop()
	}
}
