package outbox

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// A batch is far smaller than the broker's limit of 4 MiB, because larger ones save little per message and hold up what waits
	// behind them.
	batchBytes = 1 << 20
	batchCount = 256
)

// sending is the work on claimed rows of one topic and queue. Every claim ends in one of four ways: delivered, given back,
// parked, or left to the end of its lease, because the broker may still store what was sent.
type sending struct {
	outbox    *Outbox
	claims    []txn.Claim
	delivered map[string]bool // by id
	sent      []txn.Claim     // of these, those that were sent now
	stopped   map[string]bool // shard keys of ordered rows of which one was not delivered: those behind it must wait
	halted    error           // why nothing more can be sent to the queue now; nil: it can
}

func (s *sending) run(ctx context.Context) {
	for batch := range s.batches(s.unsent(ctx)) {
		s.send(ctx, batch)
	}
	if s.halted == nil && len(s.delivered) > 0 {
		s.outbox.ports.Gate.Reopen(s.name())
	}
}

func (s *sending) name() txn.Group {
	m := &s.claims[0].Message
	return txn.Group{Broker: m.Queue.Broker, Topic: m.Topic}
}

// unsent returns the claims whose messages are to be sent. A row that is claimed for the first time was never sent. Of the
// others it is found out first whether the message is visible already.
func (s *sending) unsent(ctx context.Context) (unsent []txn.Claim) {
	type found struct{ visible, known bool }
	looks := make([]found, len(s.claims))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, c := range s.claims {
		looks[i].known = true
		if c.Attempts > 1 {
			g.Go(func() error {
				looks[i].visible, looks[i].known = s.outbox.ports.Claimed.Look(ctx, c, path)
				return nil
			})
		}
	}
	_ = g.Wait()
	var behind []txn.Claim
	for i, c := range s.claims {
		switch {
		case looks[i].visible:
			s.delivered[c.Message.TxID] = true
		case !looks[i].known:
			s.stop(c)
		case s.isStopped(c):
			behind = append(behind, c)
		default:
			unsent = append(unsent, c)
		}
	}
	s.outbox.ports.Claimed.GiveBack(ctx, behind, nil)
	return unsent
}

// stop holds back the rows behind an ordered claim in its line.
func (s *sending) stop(c txn.Claim) {
	if c.Ordered {
		s.stopped[c.Message.ShardKey] = true
	}
}

func (s *sending) isStopped(c txn.Claim) bool { return c.Ordered && s.stopped[c.Message.ShardKey] }

// batches cuts claims into batches.
func (s *sending) batches(claims []txn.Claim) func(yield func([]txn.Claim) bool) {
	return func(yield func([]txn.Claim) bool) {
		start, size := 0, 0
		for i, c := range claims {
			n := s.outbox.ports.Broker.Size(&c.Message)
			if i > start && (size+n > batchBytes || i-start == batchCount) {
				if !yield(claims[start:i]) {
					return
				}
				start, size = i, 0
			}
			size += n
		}
		if start < len(claims) {
			yield(claims[start:])
		}
	}
}

// send sends claims as one batch. A batch that the broker refuses because of a message in it is sent in halves, until it is
// known which message that is.
func (s *sending) send(ctx context.Context, claims []txn.Claim) {
	claims = s.sendable(ctx, claims)
	if len(claims) == 0 {
		return
	}
	if m := &claims[0].Message; s.outbox.ports.Queues.Unread(m.Topic, m.Queue) && s.reroute(ctx, claims) {
		return
	}
	err := s.transmit(ctx, claims)
	switch {
	case err == nil:
		s.done(claims)
	case txn.IsRefusedForGood(err) && len(claims) > 1: // the broker never takes one of them
		s.send(ctx, claims[:len(claims)/2])
		s.send(ctx, claims[len(claims)/2:])
	case txn.IsRefusedForGood(err):
		s.park(ctx, claims[0], err)
	case txn.ReasonOf(err) == txn.ReasonNoQueue && s.reroute(ctx, claims):
	case txn.IsUnsent(err) && isLate(claims):
		s.giveBack(ctx, claims)
	default:
		s.halt(ctx, claims, err)
	}
}

// sendable gives back claims that must not be sent any more, and returns the others.
func (s *sending) sendable(ctx context.Context, claims []txn.Claim) (rest []txn.Claim) {
	if len(claims) > 0 && (s.halted != nil || isLate(claims)) {
		s.giveBack(ctx, claims)
		return nil
	}
	var behind []txn.Claim
	for _, c := range claims {
		if s.isStopped(c) {
			behind = append(behind, c)
		} else {
			rest = append(rest, c)
		}
	}
	s.outbox.ports.Claimed.GiveBack(ctx, behind, nil)
	return rest
}

// isLate says that nothing may be written for these claims any more. That is this process's fault, not the broker's.
func isLate(claims []txn.Claim) bool { return time.Now().After(claims[0].Lease.WriteBefore) }

// giveBack gives claims back of which nothing was sent.
func (s *sending) giveBack(ctx context.Context, claims []txn.Claim) {
	for _, c := range claims {
		s.stop(c)
	}
	s.outbox.ports.Claimed.GiveBack(ctx, claims, s.halted)
}

// reroute gives claims of a queue that the broker does not have, or that consumers do not read, another queue. It is false
// when the queue is there.
func (s *sending) reroute(ctx context.Context, claims []txn.Claim) bool {
	ctx, cancel := context.WithTimeout(ctx, s.outbox.timing.CallWithin)
	defer cancel()
	for i, c := range claims {
		if !s.outbox.ports.Claimed.Reroute(ctx, c, path) {
			if i > 0 { // the queue has come back meanwhile
				s.outbox.ports.Claimed.GiveBack(ctx, claims[i:], s.halted)
			}
			return i > 0
		}
		s.stop(c)
	}
	return true
}

func (s *sending) transmit(ctx context.Context, claims []txn.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, s.outbox.timing.AnswerWithin)
	defer cancel()
	broker, before := s.outbox.ports.Broker, claims[0].Lease.WriteBefore
	if len(claims) == 1 {
		if size := broker.Size(&claims[0].Message); size > txn.MaxMessageSize { // a broker may end the connection for it
			return &txn.SendError{
				Outcome: txn.RefusedForGood, Reason: txn.ReasonTooLarge,
				Words: fmt.Sprintf("body and properties have %d bytes, the broker accepts %d", size, txn.MaxMessageSize),
			}
		}
		return broker.Send(ctx, claims[0].Message, before)
	}
	messages := make([]txn.Message, len(claims))
	for i := range claims {
		messages[i] = claims[i].Message
	}
	return broker.SendBatch(ctx, messages, before)
}

func (s *sending) done(claims []txn.Claim) {
	s.sent = append(s.sent, claims...)
	for _, c := range claims {
		s.delivered[c.Message.TxID] = true
		s.outbox.metrics.Delivered(path, c.Message.Topic, c.Message.Queue)
		if c.Attempts > 1 {
			s.outbox.ports.Claimed.Recount(c)
		}
	}
}

// park puts a message aside that the broker does not take.
func (s *sending) park(ctx context.Context, c txn.Claim, refused error) {
	s.stop(c)
	o := s.outbox
	o.metrics.Deliveries.WithLabelValues(path, "failed").Inc()
	o.log.ErrorContext(ctx, "message cannot be delivered, and is put aside", "id", c.Message.TxID, "topic", c.Message.Topic, "error", refused)
	ctx, cancel := context.WithTimeout(ctx, s.outbox.timing.CallWithin)
	defer cancel()
	if err := o.ports.Rows.Park(ctx, c.Lease, txn.Why(refused)); err != nil {
		o.log.WarnContext(ctx, "putting a message aside; it is tried again", "id", c.Message.TxID, "error", err)
	}
}

// halt ends the work on the queue, and pauses the topic on this broker. The leases are given back, unless the broker may
// still store what was sent.
func (s *sending) halt(ctx context.Context, claims []txn.Claim, err error) {
	s.halted = err
	wait := s.outbox.ports.Gate.BackOff(s.name(), txn.ReasonOf(err) == txn.ReasonBusy)
	result := "failed"
	if txn.IsMaybeSent(err) {
		result = "unconfirmed"
		for _, c := range claims {
			s.stop(c)
		}
	} else {
		s.giveBack(ctx, claims)
	}
	s.outbox.metrics.Deliveries.WithLabelValues(path, result).Add(float64(len(claims)))
	s.outbox.log.WarnContext(ctx, "messages not delivered; they are tried again", "topic", s.name().Topic, "broker", s.name().Broker,
		"messages", len(claims), "again_in", wait, "error", err)
}
