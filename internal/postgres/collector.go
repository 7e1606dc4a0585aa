package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the counters of the pool as metrics.
func (db *DB) Collector() prometheus.Collector { return &poolCollector{db.pool} }

type poolCollector struct{ pool *pgxpool.Pool }

var poolMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*pgxpool.Stat) float64
}{
	{poolDesc("connections", "Connections to PostgreSQL."), prometheus.GaugeValue,
		func(s *pgxpool.Stat) float64 { return float64(s.TotalConns()) }},
	{poolDesc("connections_acquired", "Connections in use."), prometheus.GaugeValue,
		func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) }},
	{poolDesc("connections_max", "Connections that the pool may hold."), prometheus.GaugeValue,
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) }},
	{poolDesc("acquires_total", "Connections acquired."), prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.AcquireCount()) }},
	{poolDesc("acquires_waited_total", "Connections that had to be waited for."), prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) }},
	{poolDesc("acquire_seconds_total", "Time spent acquiring connections."), prometheus.CounterValue,
		func(s *pgxpool.Stat) float64 { return s.AcquireDuration().Seconds() }},
}

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("txsvc_pgxpool_"+name, help, nil, nil)
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range poolMetrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	stat := c.pool.Stat()
	for _, m := range poolMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(stat))
	}
}
