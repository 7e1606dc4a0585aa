package rocketmq

import "github.com/prometheus/client_golang/prometheus"

// collector exports the breakers of all brokers that are known.
type collector struct {
	client       *Client
	open, trials *prometheus.Desc
}

// NewCollector returns the metrics of a client.
func NewCollector(c *Client) prometheus.Collector {
	labels := []string{"broker"}
	return &collector{
		client: c,
		open: prometheus.NewDesc("txsvc_broker_breaker_open",
			"1 while no half messages are sent to the broker, because it has not stored them.", labels, nil),
		trials: prometheus.NewDesc("txsvc_broker_breaker_trials_total",
			"Half messages of the service's own with which it looked whether the broker stores them again.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.open
	ch <- c.trials
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, broker := range c.client.Brokers() {
		b := c.client.breakerOf(broker)
		open := 0.0
		if b.outage.Load() != nil {
			open = 1
		}
		ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, open, broker)
		ch <- prometheus.MustNewConstMetric(c.trials, prometheus.CounterValue, float64(b.trials.Load()), broker)
	}
}
