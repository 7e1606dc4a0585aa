package txn

import (
	"context"
	"fmt"
	"time"
)

// within returns a context that ends after the limit, or at the given time, whichever comes first.
func within(ctx context.Context, limit time.Duration, by time.Time) (context.Context, context.CancelFunc) {
	end := time.Now().Add(limit)
	if by.Before(end) {
		end = by
	}
	return context.WithDeadline(ctx, end)
}

// awaitHead waits until all earlier messages of an ordered one's line are visible, and says whether they are.
func (s *Service) awaitHead(ctx context.Context, t *Transaction, by time.Time) bool {
	ctx, cancel := within(ctx, s.config.Timing.HeadWithin, by)
	defer cancel()
	return s.store.AwaitHead(ctx, t)
}

// renew extends a lease whose time to write has passed, and says whether this process holds it still.
func (s *Service) renew(ctx context.Context, lease Lease, by time.Time) (Lease, bool) {
	ctx, cancel := within(ctx, s.config.Timing.LeaseWithin, by)
	defer cancel()
	renewed, held, err := s.store.Renew(ctx, lease)
	return renewed, held && err == nil
}

// release gives a lease back, so that the resolver goes on at once.
func (s *Service) release(ctx context.Context, t *Transaction, lease Lease, by time.Time) {
	ctx, cancel := within(ctx, s.config.Timing.LeaseWithin, by)
	defer cancel()
	if err := s.store.Release(ctx, lease); err != nil {
		s.log.WarnContext(ctx, "releasing a lease; it ends by itself", "id", t.ID, "error", err)
		return
	}
	s.deliveries.Wake(t.Waiting())
}

// commitHalf makes the message visible, unless its queue was removed since the half message was stored, or may have been,
// because the broker would put the message there all the same, where no consumer finds it.
func (s *Service) commitHalf(ctx context.Context, a *Attempt, lease Lease, by time.Time) error {
	if time.Since(a.CreatedAt) > s.config.Timing.RefreshAfter {
		s.refresh(ctx, a.Kind.Topic, by)
	}
	if !s.routing.Readable(a.Kind.Topic, a.Route.Queue) {
		return &SendError{Outcome: Unsent, Reason: ReasonNoQueue, Cause: fmt.Errorf("consumers do not read queue %s of topic %s", a.Route.Queue, a.Kind.Topic)}
	}
	ctx, cancel := within(ctx, s.config.Timing.EndWithin, by)
	defer cancel()
	return s.end(ctx, a.Half, DecisionCommit, lease.WriteBefore)
}

// abort rolls back the half message of an attempt that certainly never commits. A rollback that is lost costs a check-back.
func (s *Service) abort(ctx context.Context, a *Attempt, by time.Time) {
	s.store.Settle(a.CreatedAt)
	if a.Via == ViaOutbox {
		return
	}
	ctx, cancel := within(ctx, s.config.Timing.AbortWithin, by)
	defer cancel()
	if err := s.end(ctx, a.Half, DecisionRollback, time.Time{}); err != nil {
		s.log.InfoContext(ctx, "rollback not confirmed, left to a check-back", "message_id", a.Half.UniqKey, "error", err)
	}
}

// end ends a half message that was stored a moment ago. A broker with transientStorePoolEnable cannot read it back until it
// has moved it from its own memory into the file, every 200 ms by default, and refuses the end as one of a half message that
// it does not have. What is refused like that was not executed and never will be, because the broker looks for the half
// message before it does anything: so it is sent again until ctx ends.
func (s *Service) end(ctx context.Context, h Half, d Decision, writeBefore time.Time) error {
	timing := &s.config.Timing
	for pause := timing.EndPause; ; pause = min(2*pause, timing.EndPauseMost) {
		err := s.broker.End(ctx, h, d, writeBefore)
		if ReasonOf(err) != ReasonHalfGone {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
