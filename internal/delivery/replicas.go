package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// announceAfter is how long this process may take to deliver what came before it asks other replicas to help. It also keeps
// the announcements to twenty a second.
const announceAfter = 50 * time.Millisecond

// finder finds the groups of rows that wait.
type finder interface {
	Groups(ctx context.Context) ([]txn.Group, error)
}

// outboxWork is the outbox, as far as it is woken.
type outboxWork interface {
	Wake(name txn.Group)
	Idle() bool
}

// lineWork is the lines, as far as they are woken.
type lineWork interface {
	Look(topic string)
	Idle() bool
}

// replicas finds what other replicas have left, and asks them to help with what this one has. It is safe for concurrent use.
type replicas struct {
	finder  finder
	waiting Waiting
	outbox  outboxWork
	lines   lineWork
	timing  txn.Timing
	log     *slog.Logger

	notified chan struct{} // another replica asks for help
	behind   chan struct{} // help may be needed with what came
	asked    chan struct{} // help is wanted in any case
}

func newReplicas(f finder, waiting Waiting, outbox outboxWork, lines lineWork, timing txn.Timing, log *slog.Logger) *replicas {
	return &replicas{
		finder: f, waiting: waiting, outbox: outbox, lines: lines, timing: timing, log: log,
		notified: make(chan struct{}, 1), behind: make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
}

// seek looks for what waits: every Timing.PollEvery, and when another replica asks for help.
func (r *replicas) seek(ctx context.Context) {
	ticker := time.NewTicker(r.timing.PollEvery)
	defer ticker.Stop()
	for {
		r.find(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.notified:
		case <-ticker.C:
		}
	}
}

func (r *replicas) find(ctx context.Context) {
	found, err := r.finder.Groups(ctx)
	if err != nil {
		r.log.DebugContext(ctx, "looking for rows that wait in the outbox or in lines", "error", err)
		return
	}
	for _, name := range found {
		if name.Broker == "" {
			r.lines.Look(name.Topic)
		} else {
			r.outbox.Wake(name)
		}
	}
}

// listen hears when other replicas ask for help.
func (r *replicas) listen(ctx context.Context) {
	r.waiting.Listen(ctx, func() { pause.Wake(r.notified) })
}

// announce asks other replicas to help when this one has not delivered at once what came. It does not when this one keeps up,
// or cannot do anything either. NOTIFY is no part of business transactions, because there it makes all COMMITs wait for one
// another.
func (r *replicas) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		case <-r.behind:
			pause.For(ctx, announceAfter)
			if r.outbox.Idle() && r.lines.Idle() {
				continue
			}
		}
		r.notify(ctx)
	}
}

func (r *replicas) notify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.timing.CallWithin)
	defer cancel()
	if err := r.waiting.Notify(ctx); err != nil {
		r.log.DebugContext(ctx, "asking other replicas for help; they look by themselves", "error", err)
	}
}
