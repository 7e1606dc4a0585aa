package messages_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/txn"
)

// slowlyBusy is a broker that is busy, and takes as long as it is waited for to say so.
type slowlyBusy struct{ messages.Broker }

func (slowlyBusy) NewUniqKey() string { return "key" }

func (slowlyBusy) Size(*txn.Message) int { return 1 }

func (slowlyBusy) Refusals(context.Context, *txn.Message) []*txn.SendError { return nil }

func (slowlyBusy) Publish(ctx context.Context, _ []txn.Message) (txn.SendStatus, error) {
	<-ctx.Done()
	return "", &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonBusy}
}

type oneQueue struct{}

func (oneQueue) Route(context.Context, txn.Destination, txn.SelectorInput) (txn.Route, error) {
	return txn.Route{Queue: txn.Queue{Broker: "broker-a"}}, nil
}

func (oneQueue) Refresh(context.Context, string) {}

// TestMessageKeepsToItsTime, however long its broker takes.
func TestMessageKeepsToItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config, registry := messages.DefaultConfig(), prometheus.NewRegistry()
		queues := txn.NewMetrics(prometheus.NewRegistry()).QueueMessages
		s := messages.New(config, map[string]txn.Destination{"orders": {Topic: "orders"}}, oneQueue{}, slowlyBusy{}, registry, queues, slog.New(slog.DiscardHandler))
		began := time.Now()
		_, err := s.Send(t.Context(), messages.Request{Topic: "orders", ShardKey: "acme", Messages: []messages.Message{{Body: []byte(`{}`), JSON: true}}})
		if code := txn.CodeOf(err); code != txn.CodeBrokerUnavailable {
			t.Errorf("got %v, want broker_unavailable", err)
		}
		if took, limit := time.Since(began), config.Timing.MessageBudget().Total(); took > limit {
			t.Errorf("it took %s, want %s at most", took, limit)
		}
	})
}
