package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/txn"
)

// newMessages makes what sends messages without a transaction.
func newMessages(s settings, topics map[string]txn.Destination, router messages.Router, broker messages.Broker, metrics *txn.Metrics, reg prometheus.Registerer, log *slog.Logger) *messages.Service {
	limits := messages.DefaultConfig()
	limits.MaxInFlight = s.MaxInFlight
	return messages.New(limits, topics, router, broker, reg, metrics.QueueMessages, log)
}

// minDrain is how long a stop waits for messages of mode async at least, also when the requests took all its time.
const minDrain = 5 * time.Second

// drain waits for the accepted messages, as long as the stop allows.
func (s settings) drain(ctx context.Context, sender *messages.Service, log *slog.Logger, began time.Time) {
	limit, cancel := context.WithTimeout(ctx, max(minDrain, s.ShutdownTimeout-time.Since(began)))
	defer cancel()
	if err := sender.Close(limit); err != nil {
		log.ErrorContext(ctx, "messages are lost", "error", err)
	}
}
