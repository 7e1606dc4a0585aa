package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/txn"
)

// measured is what was read last of the pending rows, as metrics. While it cannot be read, the counts vanish, because
// nobody knows them; the age of the oldest grows, because what was pending last still is as far as anybody knows, and
// because of what came since nothing is known: so an alert about it fires.
type measured struct {
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

func newMeasured() *measured { return &measured{at: time.Now(), never: true} }

// set notes a reading that began at the given time.
func (m *measured) set(p txn.Pending, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.at, m.failed, m.never = p, began, false, false
}

func (m *measured) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = true
}

// Describe implements prometheus.Collector.
func (m *measured) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descPending, descParked, descOldest, descFailed} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *measured) Collect(ch chan<- prometheus.Metric) {
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

// noteLimit bounds the rows that are told at once why they wait.
const noteLimit = 500

// noteSilent tells rows what they wait for, because nobody claims those of a broker that does not answer, and so nobody
// writes down what it met.
func (r *Resolver) noteSilent(ctx context.Context) {
	for _, broker := range r.broker.Brokers() {
		if r.Alive(broker) {
			continue
		}
		if err := r.store.NoteWaiting(ctx, broker, txn.Silent(broker), noteLimit); err != nil {
			r.log.DebugContext(ctx, "telling rows that their broker does not answer", "broker", broker, "error", err)
		}
	}
}

// measureAll measures at most a twentieth of the time: a large backlog takes long to count. After a failure it is quicker,
// so that what is pending is soon known again.
func (r *Resolver) measureAll(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		wait := gaugesEvery
		if r.measure(ctx) {
			wait = max(wait, 20*time.Since(start))
		}
		pause.For(ctx, wait)
	}
}

func (r *Resolver) measure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	p, err := r.store.Pending(ctx)
	if err != nil {
		r.measured.fail()
		r.log.DebugContext(ctx, "measuring pending deliveries", "error", err)
		return false
	}
	r.measured.set(p, began)
	if p.Count > 0 {
		r.noteSilent(ctx)
	}
	return true
}
