package txn

import (
	"context"
	"errors"
	"time"
)

// follow waits for the answer of the request that leads the flight, and gives the same. It does not give up before the
// leader's time is over.
func (s *Service) follow(ctx context.Context, f *flight, r *submission) (*Transaction, error) {
	timeout := time.NewTimer(time.Until(f.by) + s.config.Timing.FollowSlack())
	defer timeout.Stop()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, Errorf(CodeConflict, "the request was cancelled while the same id was being worked on")
	case <-timeout.C:
		return nil, Errorf(CodeConflict, "a request with the same id is still running")
	}
	if f.transaction == nil && f.err == nil {
		return nil, Errorf(CodeInternal, "the request with the same id ended without an answer")
	}
	if !f.fingerprint.same(r.fingerprint) {
		if f.transaction == nil && !decided(f.err) {
			return nil, Errorf(CodeConflict, "a different request with the same id was being worked on and failed; try again")
		}
		return nil, mismatch(r.ID)
	}
	if f.err != nil {
		return nil, again(f.err)
	}
	t := *f.transaction
	t.Replayed = true
	return &t, nil
}

// answerAgain returns the answer to a request whose id has a row, or an attempt whose outcome is being found out.
func answerAgain(t *Transaction, fingerprint Fingerprint) (*Transaction, error) {
	same := t.Fingerprint.same(fingerprint)
	switch {
	case !same && t.State == StateUnknown:
		return nil, Errorf(CodeConflict, "it is not known yet whether another request with this id is committed; try again")
	case !same:
		return nil, mismatch(t.ID)
	case t.Rejection != nil:
		return nil, again(rejected(t))
	}
	t.Replayed = true
	return t, nil
}

// again returns the error that another request was answered with. Only a final one says that it is repeated.
func again(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Final {
		return err
	}
	repeated := *e
	repeated.Replayed = true
	return &repeated
}

func mismatch(id string) *Error {
	return &Error{Code: CodeIdempotencyMismatch, Detail: "this id was used for a request with another content", TransactionID: id}
}

func rejected(t *Transaction) *Error {
	return &Error{Code: CodeRejected, Detail: t.Rejection.Message, Rejection: t.Rejection, Final: true, TransactionID: t.ID}
}

// unknown is the answer to an attempt whose outcome is being found out.
func unknown(a *Attempt) *Transaction {
	return &Transaction{
		ID: a.Request.ID, Kind: a.Kind.Name, State: StateUnknown, Delivery: DeliveryNone, ShardKey: a.Request.ShardKey,
		Topic: a.Kind.Topic, Tag: a.Request.Tag, Route: a.Route, MessageID: a.Half.UniqKey, CreatedAt: a.CreatedAt,
	}
}

// explain says what a pending message waits for, where the row does not yet, because nobody tries a broker that does not answer.
func (s *Service) explain(t *Transaction) {
	if t.Delivery == DeliveryPending && t.PendingReason == "" && !s.deliveries.Alive(t.Route.Queue.Broker) {
		t.PendingReason = Silent(t.Route.Queue.Broker)
	}
}

// Silent is what keeps the messages waiting that are for a broker that does not answer.
func Silent(broker string) string { return "broker " + broker + " does not answer" }
