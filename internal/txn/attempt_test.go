package txn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func wantState(t *testing.T, got *Transaction, err error, state State, delivery Delivery) {
	t.Helper()
	if err != nil || got.State != state || got.Delivery != delivery {
		t.Errorf("got %+v, error %v; want %s, %s", got, err, state, delivery)
	}
}

func wantCode(t *testing.T, err error, code Code) {
	t.Helper()
	if err == nil || CodeOf(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

var replyLost = &SendError{Outcome: MaybeSent, Reason: ReasonSilent}

func unsent(why SendReason) error { return &SendError{Outcome: Unsent, Reason: why} }

// hang is what a port does that does not answer.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCommitIsEndedAndMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		got, err := w.submit("plain", "tx-1")
		wantState(t, got, err, StateCommitted, DeliveryDelivered)
		w.wantNotes("half key-1", "reached half-sent", "reached committed", "commit key-1", "reached end-answered", "mark")
		got, err = w.submit("plain", "tx-1")
		wantState(t, got, err, StateCommitted, DeliveryDelivered)
		if !got.Replayed {
			t.Error("the second answer does not say that it repeats the first")
		}
		w.wantNotes()
	})
}

// TestWhatTheHalfMessageIsTold: commit off a committed row, rollback when the row can never come, and nothing while that is open.
func TestWhatTheHalfMessageIsTold(t *testing.T) {
	refused := &Transaction{ID: "tx-1", State: StateRolledBack, Rejection: &Rejection{Message: "no"}}
	for name, tc := range map[string]struct {
		outcome Outcome
		told    []string
		code    Code
	}{
		"rejected": {Outcome{Kind: OutcomeRejected, Transaction: refused}, []string{"rollback key-1"}, CodeRejected},
		"failed":   {Outcome{Kind: OutcomeFailed, Err: DatabaseUnavailable(nil, "no")}, []string{"rollback key-1"}, CodeDatabaseUnavailable},
		"taken":    {Outcome{Kind: OutcomeTaken, Transaction: &Transaction{ID: "tx-1", State: StateCommitted}}, []string{"rollback key-1"}, CodeIdempotencyMismatch},
		"unknown":  {Outcome{Kind: OutcomeUnknown, Err: errors.New("lost")}, []string{"undecided"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run = func(*Attempt) Outcome { return tc.outcome }
				got, err := w.submit("plain", "tx-1")
				if tc.code == "" {
					wantState(t, got, err, StateUnknown, DeliveryNone)
				} else {
					wantCode(t, err, tc.code)
				}
				w.wantNotes(append([]string{"half key-1", "reached half-sent"}, tc.told...)...)
			})
		})
	}
}

// TestEndThatIsNotConfirmed: the lease is given back only when END_TRANSACTION is certainly not under way, and the message is
// called delivered only when the broker has said so.
func TestEndThatIsNotConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		gone bool // the queue
		more []string
	}{
		"reply lost":   {err: replyLost, more: []string{"commit key-1", "reached end-answered"}},
		"not sent":     {err: unsent(ReasonUnreachable), more: []string{"commit key-1", "reached end-answered", "release", "wake"}},
		"queue is not": {gone: true, more: []string{"reached end-answered", "release", "wake"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.end = func(context.Context, Decision, time.Time) error { return tc.err }
				w.readable = func() bool { return !tc.gone }
				got, err := w.submit("plain", "tx-1")
				wantState(t, got, err, StateCommitted, DeliveryPending)
				w.wantNotes(append([]string{"half key-1", "reached half-sent", "reached committed"}, tc.more...)...)
			})
		})
	}
}

// TestRefusedEndIsRepeated: a broker that cannot read the half message back yet has not executed the end.
func TestRefusedEndIsRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		readable time.Duration
		delivery Delivery
	}{
		"until it can": {200 * time.Millisecond, DeliveryDelivered},
		"not for ever": {time.Hour, DeliveryPending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newWorld(t), time.Now()
				w.end = func(context.Context, Decision, time.Time) error {
					if time.Since(began) < tc.readable {
						return unsent(ReasonHalfGone)
					}
					return nil
				}
				got, err := w.submit("plain", "tx-1")
				wantState(t, got, err, StateCommitted, tc.delivery)
				if took := time.Since(began); took > w.timing.EndWithin {
					t.Errorf("it was repeated for %s, longer than %s", took, w.timing.EndWithin)
				}
			})
		})
	}
}

func TestLateLeaseIsRenewed(t *testing.T) {
	for name, held := range map[string]bool{"held": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run = func(a *Attempt) Outcome {
					o := w.commit(a)
					time.Sleep(w.timing.WriteWithin + time.Millisecond) // the process was held up
					return o
				}
				w.renew = func(_ context.Context, l Lease) (Lease, bool, error) {
					l.WriteBefore = time.Now().Add(w.timing.WriteWithin)
					return l, held, nil
				}
				w.end = func(_ context.Context, _ Decision, writeBefore time.Time) error {
					if !time.Now().Before(writeBefore) {
						t.Errorf("the end may be written until %s, which is over", writeBefore)
					}
					return nil
				}
				got, err := w.submit("plain", "tx-1")
				notes := []string{"half key-1", "reached half-sent", "reached committed", "renew"}
				if held {
					wantState(t, got, err, StateCommitted, DeliveryDelivered)
					w.wantNotes(append(notes, "refresh", "commit key-1", "reached end-answered", "mark")...)
				} else {
					wantState(t, got, err, StateCommitted, DeliveryPending)
					w.wantNotes(notes...)
				}
			})
		})
	}
}

// TestNotAtTheHead: an ordered message waits a moment for those before it, and is then left to the resolver.
func TestNotAtTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(a *Attempt) Outcome {
			o := w.commit(a)
			o.Head = false
			return o
		}
		w.awaitHead = func(ctx context.Context) bool { return hang(ctx) == nil }
		began := time.Now()
		got, err := w.submit("ordered", "tx-1")
		wantState(t, got, err, StateCommitted, DeliveryPending)
		w.wantNotes("half key-1", "reached half-sent", "reached committed", "release", "wake")
		if took := time.Since(began); took != w.timing.HeadWithin {
			t.Errorf("it waited %s, want %s", took, w.timing.HeadWithin)
		}
	})
}

func TestWithoutAHalfMessage(t *testing.T) {
	unavailable := BrokerUnavailable(nil, "no queue")
	for name, tc := range map[string]struct {
		kind   string
		change func(*world)
		notes  []string
		code   Code
	}{
		"outbox, cannot be relayed": {"outbox", func(w *world) { w.silent = true }, nil, ""},
		"fallback, silent broker":   {"fallback", func(w *world) { w.silent = true }, nil, ""},
		"fallback, no queue":        {"fallback", func(w *world) { w.route = func(context.Context) (Route, error) { return Route{}, unavailable } }, nil, ""},
		"no fallback, no queue":     {"plain", func(w *world) { w.route = func(context.Context) (Route, error) { return Route{}, unavailable } }, nil, CodeBrokerUnavailable},
		"fallback, not sent twice":  {"fallback", notStored(replyLost, 0), []string{"half key-1", "half key-2"}, ""},
		"fallback, slow":            {"fallback", notStored(replyLost, 2*time.Second), []string{"half key-1"}, ""},
		"fallback, refused":         {"fallback", notStored(&SendError{Outcome: RefusedForGood, Reason: ReasonTooLarge, Words: "large"}, 0), []string{"half key-1"}, CodePayloadTooLarge},
		"no fallback":               {"plain", notStored(replyLost, 0), []string{"half key-1", "half key-2"}, CodeBrokerUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				tc.change(w)
				var via Via
				var half Half
				w.run = func(a *Attempt) Outcome {
					via, half = a.Via, a.Half
					return w.commit(a)
				}
				got, err := w.submit(tc.kind, "tx-1")
				if tc.code != "" {
					wantCode(t, err, tc.code)
					w.wantNotes(tc.notes...)
					return
				}
				wantState(t, got, err, StateCommitted, DeliveryPending)
				w.wantNotes(append(tc.notes, "reached half-sent", "reached committed", "wake")...)
				if last := fmt.Sprintf("key-%d", len(tc.notes)+1); via != ViaOutbox || half.CommitLogOffset != NoHalf || half.UniqKey != last {
					t.Errorf("the row names %+v by %s, want %s without a half message", half, via, last)
				}
			})
		})
	}
}

// TestRelayed: the process sends the message of a row without a half message from memory, unless there is no room any more.
func TestRelayed(t *testing.T) {
	for name, tc := range map[string]struct {
		body  BodySource
		full  bool
		notes []string
		left  string
	}{
		"payload":     {BodyPayload, false, []string{`relay {"n":1}`}, ""},
		"result":      {BodyResult, false, []string{`relay null`}, ""},
		"out of room": {BodyPayload, true, []string{`relay {"n":1}`, "release", "wake"}, "handed over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.full = tc.full
				for _, k := range w.kinds {
					k.Body = tc.body
				}
				got, err := w.submit("outbox", "tx-1")
				wantState(t, got, err, StateCommitted, DeliveryPending)
				w.wantNotes(append([]string{"reached half-sent", "reached committed"}, tc.notes...)...)
				if left := w.open[got.CreatedAt]; left != tc.left {
					t.Errorf("the attempt was left %q, want %q", left, tc.left)
				}
			})
		})
	}
}

func notStored(err error, after time.Duration) func(*world) {
	return func(w *world) {
		w.sendHalf = func(context.Context, Message) (Half, error) {
			time.Sleep(after)
			return Half{}, err
		}
	}
}

// TestRefusedQueueIsRoutedAgain once, when the topic has another queue for the key now.
func TestRefusedQueueIsRoutedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, queue := newWorld(t), inQueue
		w.route = func(context.Context) (Route, error) { return Route{Queue: queue}, nil }
		w.sendHalf = func(_ context.Context, m Message) (Half, error) {
			if m.Queue == inQueue {
				queue.ID++
				return Half{}, unsent(ReasonNoQueue)
			}
			return Half{UniqKey: m.UniqKey}, nil
		}
		got, err := w.submit("plain", "tx-1")
		wantState(t, got, err, StateCommitted, DeliveryDelivered)
		w.wantNotes("half key-1", "refresh", "half key-2", "reached half-sent", "reached committed", "commit key-2", "reached end-answered", "mark")
		if got.Route.Queue != queue {
			t.Errorf("the answer names queue %s, want %s", got.Route.Queue, queue)
		}
	})
}

// TestNoStageOutlastsItsTime: whatever does not answer, the request is answered in its time, and as the contract says.
func TestNoStageOutlastsItsTime(t *testing.T) {
	busy := unsent(ReasonBusy)
	late := func(w *world) func(*Attempt) Outcome {
		return func(a *Attempt) Outcome {
			o := w.commit(a)
			time.Sleep(w.timing.WriteWithin + time.Second)
			o.Head = false
			return o
		}
	}
	slowHalf := func(err error, refused bool) func(context.Context, Message) (Half, error) {
		moved := false
		return func(ctx context.Context, _ Message) (Half, error) {
			if refused && !moved {
				moved = true
				return Half{}, unsent(ReasonNoQueue)
			}
			if ctx.Err() != nil {
				t.Error("a half message is sent for whose answer no time is left")
			}
			_ = hang(ctx)
			return Half{}, err
		}
	}
	for name, tc := range map[string]struct {
		kind   string
		change func(*world)
		within func(Budget) time.Duration
		code   Code // "": committed and pending
	}{
		"replay": {"plain", func(w *world) {
			w.find = func(ctx context.Context, _ string) (*Transaction, error) { return nil, hang(ctx) }
		}, func(b Budget) time.Duration { return b.Replay }, CodeDatabaseUnavailable},
		"route": {"plain", func(w *world) {
			w.route = func(ctx context.Context) (Route, error) { return Route{}, BrokerUnavailable(hang(ctx), "no queue") }
		}, func(b Budget) time.Duration { return b.Route }, CodeBrokerUnavailable},
		"half without an answer": {"plain", func(w *world) {
			w.sendHalf = slowHalf(replyLost, false)
		}, func(b Budget) time.Duration { return b.Half }, CodeBrokerUnavailable},
		"half at a broker that is busy, and slow to say so": {"plain", func(w *world) {
			w.find = func(context.Context, string) (*Transaction, error) {
				time.Sleep(w.budget("plain").Replay)
				return nil, ErrNotFound
			}
			w.route = func(context.Context) (Route, error) {
				time.Sleep(w.budget("plain").Route)
				return Route{Queue: inQueue}, nil
			}
			w.sendHalf = slowHalf(busy, false)
		}, func(b Budget) time.Duration { return b.Replay + b.Route + b.Half }, CodeBrokerUnavailable},
		"half routed again": {"plain", func(w *world) {
			w.sendHalf = slowHalf(unsent(ReasonUnreachable), true)
			n := 0
			w.route = func(context.Context) (Route, error) { n++; return Route{Queue: Queue{"broker-a", n}}, nil }
		}, func(b Budget) time.Duration { return b.Replay + b.Route + b.Half }, CodeBrokerUnavailable},
		"end": {"ordered", func(w *world) {
			w.run = late(w)
			w.awaitHead = func(ctx context.Context) bool { _ = hang(ctx); return true }
			w.renew = func(ctx context.Context, l Lease) (Lease, bool, error) {
				time.Sleep(w.timing.LeaseWithin - time.Millisecond)
				return l, true, nil
			}
			w.end = func(ctx context.Context, _ Decision, _ time.Time) error {
				return errors.Join(hang(ctx), replyLost)
			}
		}, func(b Budget) time.Duration { return 2500*time.Millisecond + b.End }, ""},
		"lease": {"ordered", func(w *world) {
			w.run = late(w)
			w.renew = func(ctx context.Context, l Lease) (Lease, bool, error) { return l, false, hang(ctx) }
		}, func(b Budget) time.Duration { return 2500*time.Millisecond + b.End }, ""},
		"rollback": {"plain", func(w *world) {
			w.run = func(*Attempt) Outcome { return Outcome{Kind: OutcomeFailed, Err: DatabaseUnavailable(nil, "no")} }
			w.end = func(ctx context.Context, _ Decision, _ time.Time) error {
				return errors.Join(hang(ctx), replyLost)
			}
		}, func(b Budget) time.Duration { return b.End }, CodeDatabaseUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newWorld(t), time.Now()
				tc.change(w)
				got, err := w.submit(tc.kind, "tx-1")
				if tc.code != "" {
					wantCode(t, err, tc.code)
				} else {
					wantState(t, got, err, StateCommitted, DeliveryPending)
				}
				if took, limit := time.Since(began), tc.within(w.budget(tc.kind)); took > limit {
					t.Errorf("it took %s, want %s at most", took, limit)
				}
			})
		})
	}
}

// TestLocalTransactionHasItsRuns: what earlier stages leave, the local transaction has, and the end has what it needs.
func TestLocalTransactionHasItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(a *Attempt) Outcome {
			now := time.Now()
			if needs := time.Duration(w.timing.LocalRuns) * a.Kind.Timeout; a.RunBy.Sub(now) < needs {
				t.Errorf("%s are left for the runs, want %s", a.RunBy.Sub(now), needs)
			}
			if a.IsLast(now) || !a.IsLast(a.RunBy.Add(-a.Kind.Timeout)) {
				t.Error("a further run begins that could not end in time, or none does that could")
			}
			return w.commit(a)
		}
		_, _ = w.submit("plain", "tx-1")
	})
}
