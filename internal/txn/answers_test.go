package txn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// answered is what a request was answered, and when.
type answered struct {
	t    *Transaction
	err  error
	took time.Duration
}

func (w *world) inBackground(r Request) <-chan answered {
	c, began := make(chan answered, 1), time.Now()
	go func() {
		t, err := w.service.Submit(w.t.Context(), r)
		c <- answered{t, err, time.Since(began)}
	}()
	synctest.Wait()
	return c
}

// TestFollowersShareTheAnswer also when the leader needs all its time, and later than the kind's timeout and a half message take.
func TestFollowersShareTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		w.run = func(a *Attempt) Outcome { <-release; return w.commit(a) }
		leader := w.inBackground(requestOf("plain", "tx-1"))
		other := requestOf("plain", "tx-1")
		other.ShardKey = "another"
		follower, stranger := w.inBackground(requestOf("plain", "tx-1")), w.inBackground(other)
		time.Sleep(w.budget("plain").Total())
		close(release)
		first, second, third := <-leader, <-follower, <-stranger
		wantState(t, first.t, first.err, StateCommitted, DeliveryDelivered)
		wantState(t, second.t, second.err, StateCommitted, DeliveryDelivered)
		if first.t.Replayed || !second.t.Replayed {
			t.Error("the follower's answer is one that repeats another, the leader's is not")
		}
		wantCode(t, third.err, CodeIdempotencyMismatch)
	})
}

// TestFollowersGiveUpAfterTheirLeader does: the kind of the follower does not matter, but when the leader's time is over.
func TestFollowersGiveUpAfterTheirLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		w.run = func(a *Attempt) Outcome { <-release; return w.commit(a) }
		leader := w.inBackground(requestOf("ordered", "tx-1"))
		time.Sleep(time.Second)
		follower := <-w.inBackground(requestOf("outbox", "tx-1"))
		wantCode(t, follower.err, CodeConflict)
		if want := w.budget("ordered").Total() + w.timing.FollowSlack() - time.Second; follower.took != want {
			t.Errorf("it followed for %s, want %s", follower.took, want)
		}
		close(release)
		<-leader
	})
}

// TestRepeatedRequestLearnsAnUnknownOutcome at the moment when it is known.
func TestRepeatedRequestLearnsAnUnknownOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		committed, never bool
		state            State
		took             time.Duration
		notes            []string
	}{
		"committed": {true, false, StateCommitted, 333 * time.Millisecond, nil},
		"never was": {false, false, StateCommitted, 333 * time.Millisecond, []string{"half key-2", "reached half-sent", "reached committed", "commit key-2", "reached end-answered", "mark"}},
		"not known": {false, true, StateUnknown, 2 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var attempt *Attempt
				w.run = func(a *Attempt) Outcome { attempt = a; return Outcome{Kind: OutcomeUnknown, Err: errors.New("lost")} }
				got, err := w.submit("plain", "tx-1")
				wantState(t, got, err, StateUnknown, DeliveryNone)
				w.notes()
				w.run = nil
				again := w.inBackground(requestOf("plain", "tx-1"))
				time.Sleep(333 * time.Millisecond)
				if tc.committed {
					w.commit(attempt)
				}
				if !tc.never {
					w.settle("tx-1")
				}
				answer := <-again
				if answer.err != nil || answer.t.State != tc.state || answer.took != tc.took {
					t.Errorf("got %+v, %v after %s; want %s after %s", answer.t, answer.err, answer.took, tc.state, tc.took)
				}
				w.wantNotes(tc.notes...)
			})
		})
	}
}

// TestUnknownOutcomeIsNobodyElses: another request with the id learns that it has to wait, and Get says what is known.
func TestUnknownOutcomeIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(*Attempt) Outcome { return Outcome{Kind: OutcomeUnknown, Err: errors.New("lost")} }
		_, _ = w.submit("plain", "tx-1")
		other := requestOf("plain", "tx-1")
		other.ShardKey = "another"
		_, err := w.service.Submit(t.Context(), other)
		wantCode(t, err, CodeConflict)
		got, err := w.service.Get(t.Context(), "tx-1")
		wantState(t, got, err, StateUnknown, DeliveryNone)
		_, err = w.service.Redeliver(t.Context(), "tx-1")
		wantCode(t, err, CodeConflict)
		_, err = w.service.Get(t.Context(), "tx-2")
		wantCode(t, err, CodeNotFound)
	})
}

// TestStoredRefusalIsRepeated, and one that is not stored is not.
func TestStoredRefusalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(a *Attempt) Outcome {
			w.commit(a)
			row := w.rows[a.Request.ID]
			row.State, row.Delivery, row.Rejection = StateRolledBack, DeliveryNone, &Rejection{Message: "no"}
			return Outcome{Kind: OutcomeRejected, Transaction: row}
		}
		for _, replayed := range []bool{false, true} {
			_, err := w.submit("plain", "tx-1")
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeRejected || !e.Final || e.Replayed != replayed {
				t.Errorf("got %v, want a final refusal, repeated: %t", err, replayed)
			}
		}
	})
}

// TestOneKeyAtATime: requests of one ordered key take turns, and what waits longer than the kind's timeout is refused.
func TestOneKeyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		w.run = func(a *Attempt) Outcome { <-release; return w.commit(a) }
		first := w.inBackground(requestOf("ordered", "tx-1"))
		second := <-w.inBackground(requestOf("ordered", "tx-2"))
		wantCode(t, second.err, CodeOverloaded)
		if second.took != 5*time.Second {
			t.Errorf("it waited %s, want the kind's timeout", second.took)
		}
		close(release)
		wantState(t, (<-first).t, nil, StateCommitted, DeliveryDelivered)
		w.wantNotes("half key-1", "reached half-sent", "reached committed", "refresh", "commit key-1", "reached end-answered", "mark")
	})
}
