package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// pending measures the pending rows, and shows them as metrics. While they cannot be read, the counts vanish, because nobody
// knows them. The age of the oldest grows meanwhile, so that an alert about it fires: what was pending last still is, as far
// as is known, and nothing is known of what came since.
type pending struct {
	rows    Pending
	brokers brokers
	// evidence says which brokers do not answer: their rows are told.
	evidence answering
	timing   txn.Timing
	log      *slog.Logger

	mu     sync.Mutex
	last   txn.Pending
	at     time.Time // of the last reading, or of the start
	failed bool      // the last attempt
	never  bool      // nothing was read since the start
}

var (
	descPending = prometheus.NewDesc("txsvc_delivery_pending",
		"Committed transactions whose message is not known to be visible; absent while that cannot be read.", nil, nil)
	descParked = prometheus.NewDesc("txsvc_delivery_parked",
		"Of these, the ones that are not tried again until an operator asks for it; absent while that cannot be read.", nil, nil)
	descOldest = prometheus.NewDesc("txsvc_delivery_oldest_pending_seconds",
		"Age of the oldest committed transaction whose message is not known to be visible. While that cannot be read it is at most this: the last known age or the time since the last reading, and grows.", nil, nil)
	descFailed = prometheus.NewDesc("txsvc_delivery_reading_failed",
		"1 while what is pending cannot be read from the database, else 0.", nil, nil)
)

// gaugesEvery is the time between two counts of pending messages.
const gaugesEvery = 5 * time.Second

func newPending(rows Pending, brokers brokers, evidence answering, timing txn.Timing, log *slog.Logger) *pending {
	return &pending{rows: rows, brokers: brokers, evidence: evidence, timing: timing, log: log, at: time.Now(), never: true}
}

// set notes a reading that began at the given time.
func (m *pending) set(p txn.Pending, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.at, m.failed, m.never = p, began, false, false
}

func (m *pending) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = true
}

// Describe implements prometheus.Collector.
func (m *pending) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descPending, descParked, descOldest, descFailed} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *pending) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	failed, oldest := 0.0, time.Duration(0)
	if m.failed {
		failed = 1
	}
	if m.failed || m.last.Count > 0 {
		oldest = m.last.Oldest + time.Since(m.at)
	}
	gauge(descFailed, failed)
	gauge(descOldest, oldest.Seconds())
	if !m.failed && !m.never {
		gauge(descPending, float64(m.last.Count))
		gauge(descParked, float64(m.last.Parked))
	}
}

// noteLimit bounds the rows into which a reason is written at once.
const noteLimit = 500

// noteSilent writes into rows why they wait when their broker does not answer. Nobody claims these rows, so nobody else
// writes it.
func (m *pending) noteSilent(ctx context.Context) {
	for _, broker := range m.brokers.Brokers() {
		if m.evidence.Answering(broker) {
			continue
		}
		if err := m.rows.NoteWaiting(ctx, broker, txn.Silent(broker), noteLimit); err != nil {
			m.log.DebugContext(ctx, "noting in rows that their broker does not answer", "broker", broker, "error", err)
		}
	}
}

// measureAll measures every gaugesEvery, and at most a twentieth of the time, because a large backlog takes long to
// count. After a failure it waits less, so that the counts are soon known again.
func (m *pending) measureAll(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		wait := gaugesEvery
		if m.measure(ctx) {
			wait = max(wait, 20*time.Since(start))
		}
		pause.For(ctx, wait)
	}
}

func (m *pending) measure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, m.timing.CallWithin)
	defer cancel()
	began := time.Now()
	p, err := m.rows.Pending(ctx)
	if err != nil {
		m.fail()
		m.log.DebugContext(ctx, "measuring pending deliveries", "error", err)
		return false
	}
	m.set(p, began)
	if p.Count > 0 {
		m.noteSilent(ctx)
	}
	return true
}
