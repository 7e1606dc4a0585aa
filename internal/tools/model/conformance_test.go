package model

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
	"github.com/txsvc/txsvc/internal/tools/model/broker"
	"github.com/txsvc/txsvc/internal/tools/model/world"
	"github.com/txsvc/txsvc/internal/txn"
)

func TestMain(m *testing.M) { os.Exit(stacktest.With(m).Run()) }

// commits are what brokers are told about one half message, and how many copies are visible then.
var commits = []struct {
	name      string
	decisions []txn.Decision
	copies    int
}{
	{"commit", []txn.Decision{txn.DecisionCommit}, 1},
	{"each further commit makes one more copy", []txn.Decision{txn.DecisionCommit, txn.DecisionCommit, txn.DecisionCommit}, 3},
	{"rollback", []txn.Decision{txn.DecisionRollback}, 0},
	{"a commit after a rollback is executed", []txn.Decision{txn.DecisionRollback, txn.DecisionCommit}, 1},
	{"a rollback after a commit takes nothing back", []txn.Decision{txn.DecisionCommit, txn.DecisionRollback}, 1},
}

// conform holds a broker against what the model takes brokers for.
func conform(t *testing.T, mq Broker, topic string) {
	ctx, since := context.Background(), time.Now().Add(-time.Minute)
	message := func() txn.Message {
		return txn.Message{UniqKey: mq.NewUniqKey(), Topic: topic, ShardKey: "k", TxID: "t", Kind: "plain", Body: []byte("{}"), Queue: txn.Queue{Broker: devstack.BrokerName(0)}}
	}
	half := func(m txn.Message) txn.Half {
		h, err := mq.SendHalf(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	// settled waits until the index has all that was in the log before.
	settled := func() {
		probe := half(message())
		if err := mq.End(ctx, probe, txn.DecisionRollback, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := await.Poll(30*time.Second, func() error {
			reach, err := mq.Reach(ctx, probe)
			if err == nil && reach != txn.ReachIndex {
				return errors.New("the index probe is not in the index")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range commits {
		m := message()
		h := half(m)
		for _, d := range tc.decisions {
			if err := mq.End(ctx, h, d, time.Time{}); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		settled()
		if got, err := mq.Visible(ctx, m, h.CommitLogOffset, since, true); got != tc.copies || err != nil {
			t.Errorf("%s: got %d copies, %v, want %d", tc.name, got, err, tc.copies)
		}
	}
	m := message()
	h := half(m)
	h.CommitLogOffset++
	if err := mq.End(ctx, h, txn.DecisionCommit, time.Time{}); txn.ReasonOf(err) != txn.ReasonHalfGone || !txn.IsUnsent(err) {
		t.Errorf("the end of a half message that is not there: got %v", err)
	}
	if err := mq.End(ctx, half(message()), txn.DecisionCommit, time.Now().Add(-time.Second)); !txn.IsUnsent(err) {
		t.Errorf("an end that is too late: got %v", err)
	}
	m = message()
	if err := mq.Send(ctx, m, time.Time{}); err != nil {
		t.Error(err)
	}
	settled()
	if got, err := mq.Visible(ctx, m, -1, since, true); got != 1 || err != nil {
		t.Errorf("a message without a half message: got %d copies, %v, want 1", got, err)
	}
}

// nobody watches.
type nobody struct{}

func (nobody) Visible(broker.Copy)                       {}
func (nobody) Ended(txn.Half, txn.Message, txn.Decision) {}

func TestModelOfTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, false)
		cluster := broker.New(w, broker.Config{
			Timing: timing(), Brokers: []string{devstack.BrokerName(0)}, Queues: 1, CheckFrom: time.Hour, CheckEach: time.Hour, CheckMax: 1,
			OpBatch: time.Second, IndexLag: 20 * time.Millisecond,
		}, nobody{})
		conform(t, cluster.Connect(world.NewLife(w, "p1"), 1), topic)
		w.End()
		time.Sleep(3 * time.Hour)
	})
}

func TestRealBroker(t *testing.T) {
	nameservers := stacktest.Shared(t).Nameservers
	reader, err := remoting.New(remoting.Config{Nameservers: nameservers, Group: "model-" + remoting.UniqKey()})
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background()) //nolint:errcheck // the test is over
	topic := "model-" + remoting.UniqKey()
	if err := reader.CreateTopic(t.Context(), topic, 1); err != nil {
		t.Fatal(err)
	}
	c, err := rocketmq.New(rocketmq.Config{
		Nameservers: nameservers, Group: topic, Transport: rocketmq.TransportNative, Timing: txn.DefaultTiming(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context(), []string{topic}, nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background()) //nolint:errcheck // the test is over
	conform(t, c, topic)
}
