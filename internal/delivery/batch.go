package delivery

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/txn"
)

const (
	// A batch keeps well below the broker's limit of 4 MiB. A larger one costs less per message, and makes those that wait
	// for it wait longer.
	batchBytes = 1 << 20
	batchCount = 256
)

// send makes the messages of claimed rows without half messages visible, each once, and returns which are known to be.
// Those of one queue keep their order.
func (r *relay) send(ctx context.Context, claims []txn.Claim) map[string]bool {
	queues := make(map[txn.Queue]*sending)
	var order []*sending
	for _, c := range claims {
		s := queues[c.Message.Queue]
		if s == nil {
			s = &sending{relay: r, delivered: make(map[string]bool), stopped: make(map[string]bool)}
			queues[c.Message.Queue] = s
			order = append(order, s)
		}
		s.claims = append(s.claims, c)
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range order {
		g.Go(func() error { s.run(ctx); return nil })
	}
	_ = g.Wait()
	all := make(map[string]bool, len(claims))
	var sent []txn.Claim
	for _, s := range order {
		for id := range s.delivered {
			all[id] = true
		}
		sent = append(sent, s.sent...)
	}
	r.mark(ctx, sent)
	return all
}

// mark notes what was sent before more is claimed: of a large backlog, marks that came later would be overtaken by the ends
// of the leases.
func (r *relay) mark(ctx context.Context, sent []txn.Claim) {
	if len(sent) == 0 {
		return
	}
	ids, now := make([]string, len(sent)), time.Now()
	for i, c := range sent {
		ids[i] = c.Message.TxID
	}
	if err := r.store.MarkAll(ctx, ids, now); err != nil {
		r.log.DebugContext(ctx, "marking messages delivered; it is tried again", "error", err)
		for _, c := range sent {
			r.store.MarkDelivered(c.Message.TxID, now, c.Ordered)
		}
	}
}

// sending is the work on claimed rows of one topic and queue.
type sending struct {
	*relay
	claims    []txn.Claim
	delivered map[string]bool // by id
	sent      []txn.Claim     // of these, those that were sent now
	stopped   map[string]bool // shard keys of ordered rows of which one was not delivered
	halted    bool            // nothing can be sent any more
	why       string
}

func (s *sending) run(ctx context.Context) {
	for chunk := range s.chunks(s.verified(ctx)) {
		s.batch(ctx, chunk)
	}
	if !s.halted && len(s.delivered) > 0 {
		s.forget(s.name())
	}
}

func (s *sending) name() txn.Group {
	m := &s.claims[0].Message
	return txn.Group{Broker: m.Queue.Broker, Topic: m.Topic}
}

// verified returns what is to be sent. Nothing was sent of a row that is claimed for the first time; of others it is found
// out, when it can be, whether the message is visible already.
func (s *sending) verified(ctx context.Context) (unsent []txn.Claim) {
	states := make([]state, len(s.claims))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, c := range s.claims {
		if c.Attempts > 1 {
			g.Go(func() error { states[i] = s.look(ctx, c); return nil })
		}
	}
	_ = g.Wait()
	var behind []txn.Claim
	for i, c := range s.claims {
		switch {
		case states[i] == visible:
			s.delivered[c.Message.TxID] = true
		case states[i] == unclear:
			s.stop(c)
		case s.isStopped(c):
			behind = append(behind, c)
		default:
			unsent = append(unsent, c)
		}
	}
	s.giveBack(ctx, behind, "")
	return unsent
}

// look finds out, when it can be, what became of a message that an earlier holder may have sent.
func (s *sending) look(ctx context.Context, c txn.Claim) state {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	settled, indexed := s.settled(ctx, c)
	if !settled {
		return unclear
	}
	return s.seen(ctx, c, "relay", indexed)
}

func (s *sending) stop(c txn.Claim) {
	if c.Ordered {
		s.stopped[c.Message.ShardKey] = true
	}
}

func (s *sending) isStopped(c txn.Claim) bool { return c.Ordered && s.stopped[c.Message.ShardKey] }

// chunks cuts claims into batches.
func (s *sending) chunks(claims []txn.Claim) func(yield func([]txn.Claim) bool) {
	return func(yield func([]txn.Claim) bool) {
		start, size := 0, 0
		for i, c := range claims {
			n := s.broker.Size(c.Message)
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

// batch sends claims as one batch. One that the broker refuses because of a message in it is sent in halves, until it is
// known which message that is.
func (s *sending) batch(ctx context.Context, claims []txn.Claim) {
	claims = s.sendable(ctx, claims)
	if len(claims) == 0 {
		return
	}
	if m := &claims[0].Message; s.queues.Unread(m.Topic, m.Queue) && s.rerouteAll(ctx, claims) {
		return
	}
	err := s.transmit(ctx, claims)
	poison, refused := undeliverable(err)
	switch {
	case err == nil:
		s.done(claims)
	case refused && len(claims) > 1:
		s.batch(ctx, claims[:len(claims)/2])
		s.batch(ctx, claims[len(claims)/2:])
	case refused:
		s.park(ctx, claims[0], poison)
	case errors.Is(err, txn.ErrNoQueue) && s.rerouteAll(ctx, claims):
	case errors.Is(err, txn.ErrNotSent) && late(claims):
		s.turnBack(ctx, claims)
	default:
		s.halt(ctx, claims, err)
	}
}

// undeliverable: the message, or one of the batch, is what the broker refuses, and always will.
func undeliverable(err error) (*txn.Error, bool) {
	e, ok := errors.AsType[*txn.Error](err)
	return e, ok && (e.Code == txn.CodePayloadTooLarge || e.Code == txn.CodeInvalidRequest)
}

// sendable gives back what is not to be sent any more.
func (s *sending) sendable(ctx context.Context, claims []txn.Claim) (rest []txn.Claim) {
	if len(claims) == 0 {
		return nil
	}
	if s.halted || late(claims) {
		s.turnBack(ctx, claims)
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
	s.giveBack(ctx, behind, "")
	return rest
}

// late: nothing can be written for these claims any more. That is this process's fault, not the broker's.
func late(claims []txn.Claim) bool { return time.Now().After(claims[0].Lease.WriteBefore) }

// turnBack gives claims back of which nothing was sent.
func (s *sending) turnBack(ctx context.Context, claims []txn.Claim) {
	for _, c := range claims {
		s.stop(c)
	}
	s.giveBack(ctx, claims, s.why)
}

func (s *sending) transmit(ctx context.Context, claims []txn.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, txn.AnswerTimeout)
	defer cancel()
	before := claims[0].Lease.WriteBefore
	if len(claims) == 1 {
		if size := s.broker.Size(claims[0].Message); size > txn.MaxMessageSize { // a broker may end the connection for it
			return txn.Errorf(txn.CodePayloadTooLarge, "body and properties have %d bytes, the broker accepts %d", size, txn.MaxMessageSize)
		}
		return s.broker.Send(ctx, claims[0].Message, before)
	}
	messages := make([]txn.Message, len(claims))
	for i := range claims {
		messages[i] = claims[i].Message
	}
	return s.broker.SendBatch(ctx, messages, before)
}

func (s *sending) done(claims []txn.Claim) {
	now := time.Now()
	s.sent = append(s.sent, claims...)
	for _, c := range claims {
		s.delivered[c.Message.TxID] = true
		s.metrics.Delivered("relay", c.Message.Topic, c.Message.Queue)
		if c.Attempts > 1 {
			s.recounts.add(c, now)
		}
	}
}

// park puts a message aside that the broker does not take.
func (s *sending) park(ctx context.Context, c txn.Claim, e *txn.Error) {
	s.stop(c)
	s.metrics.Deliveries.WithLabelValues("relay", "failed").Inc()
	s.log.ErrorContext(ctx, "message cannot be delivered, and is put aside", "id", c.Message.TxID, "topic", c.Message.Topic, "error", e)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.store.Park(ctx, c.Lease, e.Detail); err != nil {
		s.log.WarnContext(ctx, "putting a message aside; it is tried again", "id", c.Message.TxID, "error", err)
	}
}

// halt ends the work on the queue, and keeps the relay from the topic on this broker for a while. The leases are kept when
// the broker may still store what was sent.
func (s *sending) halt(ctx context.Context, claims []txn.Claim, err error) {
	s.halted, s.why = true, reason(err)
	wait := s.keep(s.name(), errors.Is(err, txn.ErrBusy))
	result := "failed"
	if errors.Is(err, txn.ErrReplyMissing) {
		result = "unconfirmed"
		for _, c := range claims {
			s.stop(c)
		}
	} else {
		s.turnBack(ctx, claims)
	}
	s.metrics.Deliveries.WithLabelValues("relay", result).Add(float64(len(claims)))
	s.log.WarnContext(ctx, "messages not delivered; they are tried again", "topic", s.name().Topic, "broker", s.name().Broker,
		"messages", len(claims), "again_in", wait, "error", err)
}
