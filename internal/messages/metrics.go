package messages

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// The values of the label status besides the broker's own statuses.
const (
	statusAccepted    = "ACCEPTED"    // one-way: handed to the connection
	statusUnconfirmed = "UNCONFIRMED" // the reply is missing: it may be stored
	statusNotSent     = "NOT_SENT"    // certainly not stored
	statusRefused     = "REFUSED"     // by the broker, for good
	statusDropped     = "DROPPED"     // async: the process stopped before it could be sent
)

type metrics struct {
	messages     *prometheus.CounterVec // topic, mode, status
	waiting      prometheus.Gauge
	waitingBytes prometheus.Gauge

	waitingLimit, waitingBytesLimit prometheus.Gauge

	queues *prometheus.CounterVec // topic, broker, queue
}

// newMetrics registers the instruments. queues is the counter that transactions share.
func newMetrics(reg prometheus.Registerer, queues *prometheus.CounterVec) *metrics {
	m := &metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "txsvc_messages_total",
			Help: "Messages without a transaction, by mode and what became of them: SEND_OK and RocketMQ's other statuses, ACCEPTED (one-way), UNCONFIRMED, NOT_SENT, REFUSED, DROPPED.",
		}, []string{"topic", "mode", "status"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_messages_waiting", Help: "Messages of mode async that wait in memory.",
		}),
		waitingBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_messages_waiting_bytes", Help: "What the messages of mode async that wait in memory take.",
		}),
		waitingLimit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_messages_waiting_limit", Help: "Messages of mode async that may wait; more are refused as overloaded.",
		}),
		waitingBytesLimit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_messages_waiting_bytes_limit", Help: "What the messages of mode async that wait may take.",
		}),
		queues: queues,
	}
	reg.MustRegister(m.messages, m.waiting, m.waitingBytes, m.waitingLimit, m.waitingBytesLimit)
	return m
}

// expect makes all series of the topics, so that the first event of each is an increase, and sets the limits.
func (m *metrics) expect(topics []string, config Config) {
	asked := []string{statusUnconfirmed, statusNotSent, statusRefused}
	for status := range advices {
		asked = append(asked, string(status))
	}
	for _, topic := range topics {
		for mode, statuses := range map[Mode][]string{
			ModeSync: asked, ModeAsync: append(asked, statusDropped), ModeOneWay: {statusAccepted, statusNotSent, statusRefused},
		} {
			for _, status := range statuses {
				m.messages.WithLabelValues(topic, string(mode), status)
			}
		}
	}
	m.waitingLimit.Set(float64(config.MaxWaiting))
	m.waitingBytesLimit.Set(float64(config.MaxWaitingBytes))
}

// count counts messages by their outcome. Stored messages are visible, unless they are delayed.
func (m *metrics) count(mode Mode, list []txn.Message, status string, stored bool) {
	first := &list[0]
	n := float64(len(list))
	m.messages.WithLabelValues(first.Topic, string(mode), status).Add(n)
	if stored && first.DelayLevel == 0 && first.DeliverAt.IsZero() {
		m.queues.WithLabelValues(first.Topic, first.Queue.Broker, strconv.Itoa(first.Queue.ID)).Add(n)
	}
}
