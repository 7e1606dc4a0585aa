package txn

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the instruments of the flow and of the deliveries. Labels never hold ids or keys.
type Metrics struct {
	Transactions        *prometheus.CounterVec   // kind, outcome
	Stage               *prometheus.HistogramVec // kind, stage; seconds
	Checkbacks          *prometheus.CounterVec   // kind, answer
	Fallbacks           *prometheus.CounterVec   // kind
	Deliveries          *prometheus.CounterVec   // path, result
	QueueMessages       *prometheus.CounterVec   // topic, broker, queue
	DuplicatesSuspected prometheus.Counter
	InFlight            prometheus.Gauge
	InFlightLimit       prometheus.Gauge

	// Series that were looked up before, because a lookup by labels costs more than the count.
	delivered map[string]prometheus.Counter // of Deliveries, by path; never changed
	mu        sync.Mutex
	queues    map[topicQueue]prometheus.Counter // of QueueMessages
}

type topicQueue struct {
	topic string
	queue Queue
}

// kindMetrics are the series of one kind that each request needs.
type kindMetrics struct {
	route, half, local, end, total prometheus.Observer
	outcomes                       map[string]prometheus.Counter
}

// NewMetrics registers the instruments.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		Transactions: counter("txsvc_transactions_total",
			"Transactions by outcome: committed, rolled_back, rejected, unknown, failed, replayed.", "kind", "outcome"),
		Stage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "txsvc_stage_seconds",
			Help:    "Time spent in a stage of a transaction: route, half, local, end, total.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"kind", "stage"}),
		Checkbacks: counter("txsvc_checkbacks_total",
			"Check-backs by answer: commit, rollback, unknown; and, without a kind, foreign.", "kind", "answer"),
		Fallbacks: counter("txsvc_fallbacks_total",
			"Transactions of kinds with fallback: outbox for which no half message could be stored.", "kind"),
		Deliveries: counter("txsvc_deliveries_total",
			"Delivery attempts by path (half, checkback, resolver, relay) and result (delivered, found, rerouted, unconfirmed, failed).", "path", "result"),
		QueueMessages: counter("txsvc_queue_messages_total",
			"Messages confirmed visible, by queue.", "topic", "broker", "queue"),
		DuplicatesSuspected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "txsvc_duplicates_suspected_total",
			Help: "Messages that may be visible more than once, with the same transaction id.",
		}),
		InFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_in_flight", Help: "Transactions being worked on.",
		}),
		InFlightLimit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "txsvc_in_flight_limit", Help: "Transactions that are worked on at once at most; more are refused as overloaded.",
		}),
		delivered: make(map[string]prometheus.Counter), queues: make(map[topicQueue]prometheus.Counter),
	}
	reg.MustRegister(m.Stage, m.DuplicatesSuspected, m.InFlight, m.InFlightLimit)
	// All series exist from the start; see expect.
	m.Checkbacks.WithLabelValues("", "foreign") // of no kind here
	for path, results := range map[string][]string{
		"half": {"delivered", "unconfirmed"}, "checkback": deliveryResults, "resolver": deliveryResults, "relay": deliveryResults,
	} {
		for _, result := range results {
			m.Deliveries.WithLabelValues(path, result)
		}
		m.delivered[path] = m.Deliveries.WithLabelValues(path, "delivered")
	}
	return m
}

// outcomes are the values of the label outcome.
var outcomes = []string{"committed", "rolled_back", "rejected", "unknown", "failed", "replayed"}

// expect makes all series of a kind at the start, because rate() does not see the first event of a series that did not
// exist before. It returns those that each request needs.
func (m *Metrics) expect(kind *Kind) *kindMetrics {
	stage := func(name string) prometheus.Observer { return m.Stage.WithLabelValues(kind.Name, name) }
	k := &kindMetrics{
		route: stage("route"), half: stage("half"), local: stage("local"), end: stage("end"), total: stage("total"),
		outcomes: make(map[string]prometheus.Counter, len(outcomes)),
	}
	for _, outcome := range outcomes {
		k.outcomes[outcome] = m.Transactions.WithLabelValues(kind.Name, outcome)
	}
	for _, answer := range []string{"commit", "rollback", "unknown"} {
		m.Checkbacks.WithLabelValues(kind.Name, answer)
	}
	if kind.Fallback == FallbackOutbox {
		m.Fallbacks.WithLabelValues(kind.Name)
	}
	return k
}

// outcomeLabel is empty for a mistake of the client, because no transaction was tried.
func outcomeLabel(t *Transaction, err error) string {
	if err != nil {
		switch code := CodeOf(err); {
		case decided(err):
			return "rejected"
		case code == CodeInvalidRequest, code == CodePayloadTooLarge, code == CodeIdempotencyMismatch:
			return ""
		default:
			return "failed"
		}
	}
	if t.Replayed {
		return "replayed"
	}
	return string(t.State)
}

var deliveryResults = []string{"delivered", "found", "rerouted", "unconfirmed", "failed"}

// observe notes how long a stage took that began at since, and returns its end.
func observe(stage prometheus.Observer, since time.Time) time.Time {
	now := time.Now()
	stage.Observe(now.Sub(since).Seconds())
	return now
}

// Delivered counts a message that the broker confirmed to be visible.
func (m *Metrics) Delivered(path, topic string, q Queue) {
	m.delivered[path].Inc()
	m.QueueMessage(topic, q)
}

// QueueMessage counts a message that is known to be visible in the queue.
func (m *Metrics) QueueMessage(topic string, q Queue) {
	m.mu.Lock()
	counter, ok := m.queues[topicQueue{topic, q}]
	if !ok {
		counter = m.QueueMessages.WithLabelValues(topic, q.Broker, strconv.Itoa(q.ID))
		m.queues[topicQueue{topic, q}] = counter
	}
	m.mu.Unlock()
	counter.Inc()
}
