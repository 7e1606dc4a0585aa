package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/http"
)

// readyEvery is how often the metrics ask what /readyz would say.
const readyEvery = 5 * time.Second

// readyMetrics shows the checks of /readyz as metrics. It asks at its own times, because a scrape must not wait for a
// dependency that does not answer.
type readyMetrics struct {
	readiness http.Readiness
	within    time.Duration // as /readyz
	stopping  <-chan struct{}

	mu     sync.Mutex
	checks []http.Check
	asked  bool
}

var (
	descReady = prometheus.NewDesc("txsvc_ready", "1 while /readyz is 200, else 0: before the first check, while a dependency that everything needs is away, and from the begin of a stop on.", nil, nil)
	descCheck = prometheus.NewDesc("txsvc_check_ok", "1 while a check of /readyz is ok, else 0, also where it only degrades the service.", []string{"check"}, nil)
)

// run asks until ctx is done.
func (m *readyMetrics) run(ctx context.Context) {
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		m.ask(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (m *readyMetrics) ask(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, m.within)
	defer cancel()
	checks := m.readiness.Ready(limit)
	if ctx.Err() != nil { // they say so because of it
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks, m.asked = checks, true
}

// Describe implements prometheus.Collector.
func (m *readyMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descReady
	ch <- descCheck
}

// Collect implements prometheus.Collector.
func (m *readyMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := m.asked && http.Serves(m.checks)
	select {
	case <-m.stopping:
		ready = false
	default:
	}
	ch <- prometheus.MustNewConstMetric(descReady, prometheus.GaugeValue, number(ready))
	for _, c := range m.checks {
		ch <- prometheus.MustNewConstMetric(descCheck, prometheus.GaugeValue, number(c.OK), c.Name)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
