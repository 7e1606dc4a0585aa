package evidence

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// broker-a of the fake cluster stores index probes, and says how far they have come; broker-b never answers.
type cluster struct {
	reach      txn.Reach
	reachErr   error
	sendErr    error
	sent, back []txn.Half
	message    txn.Message // the last one
}

func (c *cluster) Brokers() []string { return []string{"broker-b", "broker-a"} }

func (c *cluster) Probe(ctx context.Context, broker string) error {
	if broker == "broker-b" {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return nil
}

func (c *cluster) NewUniqKey() string { return "fresh" }

func (c *cluster) SendHalf(_ context.Context, m txn.Message) (txn.Half, error) {
	if c.sendErr != nil {
		return txn.Half{}, c.sendErr
	}
	c.message = m
	h := txn.Half{UniqKey: m.UniqKey, Broker: m.Queue.Broker, CommitLogOffset: int64(len(c.sent))}
	c.sent = append(c.sent, h)
	return h, nil
}

func (c *cluster) Reach(context.Context, txn.Half) (txn.Reach, error) { return c.reach, c.reachErr }

func (c *cluster) prober(e *Evidence) *Prober {
	rollback := func(_ context.Context, h txn.Half) { c.back = append(c.back, h) }
	return NewProber(e, c, c, rollback, slog.New(slog.DiscardHandler))
}

// TestProbesSettle: the prober's rounds settle what came before, for the broker that answers, within Timing.Quiet and three
// rounds.
func TestProbesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := New(timing), &cluster{reach: txn.ReachIndex}
		p := c.prober(e)
		start := time.Now()
		round := func() {
			p.Probe(t.Context()) // the silent broker uses up all of its time
			p.FollowIndexes(t.Context())
		}
		wait := time.Duration(1)
		for wait > 0 && time.Since(start) < time.Minute {
			round()
			wait, _ = e.Settled("broker-a", "t", start)
		}
		if took := time.Since(start); took > timing.Quiet()+3*timing.ProbeEvery {
			t.Errorf("it took %s until what came before the start was settled", took)
		}
		if wait, _ := e.Settled("broker-a", "t", time.Now()); wait == 0 {
			t.Error("what comes now is settled at once")
		}
		if wait, _ := e.Settled("broker-b", "t", start); wait == 0 || e.Answering("broker-b") || !e.Answering("broker-a") {
			t.Error("the broker that never answers has settled something, or is taken to answer")
		}
		if len(c.sent) == 0 || len(c.back) != len(c.sent) || c.message.Kind != txn.ProbeKind || c.message.TxID != "" || c.message.Topic != "t" {
			t.Errorf("%d index probes were sent, %d rolled back, the last of %+v; want some, all, and no transaction's", len(c.sent), len(c.back), c.message)
		}
	})
}

// TestFollowIndexes: what an index probe meets says where to look for messages.
func TestFollowIndexes(t *testing.T) {
	notTold := &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNotTold}
	noQueue := &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNoQueue}
	for name, tc := range map[string]struct {
		cluster *cluster
		want    source
	}{
		"the index knows it":                       {&cluster{reach: txn.ReachIndex}, byIndex},
		"it is nowhere yet":                        {&cluster{}, byIndex},
		"it stays in its queue":                    {&cluster{reach: txn.ReachQueue}, byQueue},
		"the broker does not tell":                 {&cluster{reachErr: notTold}, byTime},
		"there is no topic for it":                 {&cluster{sendErr: noQueue}, byTime},
		"the broker does not answer at the moment": {&cluster{reachErr: errors.New("away")}, byIndex},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := New(timing)
				p := tc.cluster.prober(e)
				for range int(timing.IndexPatience/timing.ProbeEvery) + 2 {
					e.Settled("broker-a", "t", time.Now())
					p.FollowIndexes(t.Context())
					time.Sleep(timing.ProbeEvery)
				}
				if got := e.of("broker-a").index.source; got != tc.want {
					t.Errorf("got source %d, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestAnIndexThatDidNotTell is looked at now and then, also when nobody asks, so that it is noticed when it tells again.
func TestAnIndexThatDidNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := New(timing), &cluster{reachErr: &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNotTold}}
		p := c.prober(e)
		e.Settled("broker-a", "t", time.Now())
		p.FollowIndexes(t.Context())
		if e.Indexed("broker-a") || len(e.Degraded()) != 1 {
			t.Error("the index is believed although the broker does not tell")
		}
		c.reach, c.reachErr = txn.ReachIndex, nil
		time.Sleep(timing.IndexWanted)
		p.FollowIndexes(t.Context())
		if e.Indexed("broker-a") {
			t.Error("looked at although nobody asks and little time has passed")
		}
		time.Sleep(lookAgainEvery)
		p.FollowIndexes(t.Context())
		if !e.Indexed("broker-a") || len(e.Degraded()) > 0 {
			t.Error("it was not noticed that the index tells again")
		}
	})
}

// TestNobodyAsks: then no index probe is sent.
func TestNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := New(timing), &cluster{}
		p := c.prober(e)
		p.FollowIndexes(t.Context())
		e.Settled("broker-a", "t", time.Now())
		time.Sleep(timing.IndexWanted)
		p.FollowIndexes(t.Context())
		if len(c.sent) > 0 {
			t.Errorf("%d index probes were sent, want none", len(c.sent))
		}
	})
}
