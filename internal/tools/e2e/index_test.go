package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// startDying starts a replica that dies when messages of the kind are visible, before it says so to anybody.
func (e *env) startDying(kind string) *service {
	e.t.Helper()
	return e.start("TXSVC_FAILPOINT=" + map[string]string{"half": "end-answered@10", "outbox": "relay-answered@1"}[kind]).ready()
}

// leaveUnmarked posts what the replica dies of.
func (s *service) leaveUnmarked(kind string) {
	s.t.Helper()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			_, _ = s.post("/v1/transactions", numbered(kind, fmt.Sprint("tx-", i), fmt.Sprint("key-", i)))
		})
	}
	wg.Wait()
	s.awaitDeath()
}

// TestIndexFallsBehind: messages are visible that nobody has marked, and the broker's index does not know them for longer
// than a lease. Nobody makes them visible again.
func TestIndexFallsBehind(t *testing.T) {
	for _, kind := range []string{"half", "outbox"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e, stack := newLentEnv(t, devstack.Options{})
			e.counted()
			dying := e.startDying(kind)
			resume, err := stack.Broker(0).PauseThread(devstack.IndexThread)
			if err != nil {
				t.Fatal(err)
			}
			resume = sync.OnceFunc(resume)
			defer resume()
			dying.leaveUnmarked(kind)
			e.start().ready()
			time.Sleep(20 * time.Second) // the outage itself: longer than a lease, and what else is waited for
			resume()
			if got := e.settleInOrder(recoverLimit); got == 0 {
				t.Error("nothing was committed")
			}
		})
	}
}

// TestIndexIsLost: messages are visible that nobody has marked, and the broker has lost what its index knew of them: it was
// killed, and began to recover behind them. Nobody makes them visible again.
func TestIndexIsLost(t *testing.T) {
	for _, kind := range []string{"half", "outbox"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e, stack := newPrivateEnv(t, devstack.Options{BrokerConfig: map[string]string{
				"mappedFileSizeCommitLog": "1048576", "flushConsumeQueueThoroughInterval": "1000",
			}})
			e.counted()
			e.startDying(kind).leaveUnmarked(kind)
			e.loseIndex(stack)
			e.start().ready()
			if got := e.settleInOrder(recoverLimit); got == 0 {
				t.Error("nothing was committed")
			}
		})
	}
}

// loseIndex kills the broker, and starts it, until its index does not know what is in the topic.
func (e *env) loseIndex(stack *devstack.Stack) {
	e.t.Helper()
	if err := e.mq.CreateTopic(e.t.Context(), e.topic+"-other", 1); err != nil {
		e.t.Fatal(err)
	}
	await.Success(e.t, 2*time.Minute, func() error {
		for range 40 { // two files of the commit log and more; recovery begins some seconds before the broker's last checkpoint
			_, err := e.mq.Send(e.t.Context(), "broker-a", &remoting.SendRequest{Topic: e.topic + "-other", Body: make([]byte, 60_000)})
			if err != nil {
				return err
			}
		}
		time.Sleep(6 * time.Second) // what a checkpoint is behind
		stack.Broker(0).Kill()
		if err := stack.Broker(0).Start(e.t.Context()); err != nil {
			return err
		}
		visible := e.visible()
		if len(visible) == 0 {
			return errors.New("nothing is visible")
		}
		for id, copies := range visible {
			known, err := e.mq.QueryByUniqKey(e.t.Context(), "broker-a", e.topic, copies[0].UniqKey(), time.Time{}, time.Time{})
			if err != nil || len(known) > 0 {
				return fmt.Errorf("the index knows %s (%v)", id, err)
			}
		}
		return nil
	})
}
