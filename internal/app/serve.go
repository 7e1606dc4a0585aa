package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/delivery"
	"github.com/txsvc/txsvc/internal/failpoint"
	"github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/postgres/retention"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/routing"
	"github.com/txsvc/txsvc/internal/txn"
)

type serveCommand struct {
	database
	broker
	server
}

// Run serves until a signal comes.
func (c *serveCommand) Run(ctx context.Context, code Code, out output) error {
	if err := errors.Join(c.server.validate(), c.database.validate(), c.cluster.validate()); err != nil {
		return err
	}
	if c.Config == "" {
		return errors.New("TXSVC_CONFIG is not set: it names the YAML file of kinds (see docs/configuration.md)")
	}
	file, err := config.Load(c.Config, code.Selectors)
	if err != nil {
		return err
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	return serve(ctx, listener, settings{code, c.database, c.broker, c.server, file}, c.logger(out.stderr), nil)
}

// settings is all that a running service needs to know.
type settings struct {
	code Code
	database
	broker
	server
	file *config.File
}

// startTimeout bounds the first attempt to reach all dependencies. The service starts without those that it cannot reach, and goes on trying.
const startTimeout = 10 * time.Second

// listen comes first: an address that is taken is found before anything is started.
func (s server) listen(ctx context.Context) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("TXSVC_LISTEN=%s: %w", s.Listen, err)
	}
	return listener, nil
}

// serve runs the service until ctx is done, and then stops it in an order that loses nothing: accept no requests, finish those
// in flight, send the messages that wait in memory, unregister from the brokers, write the last delivered marks.
// started is called when requests are accepted. The listener is closed in any case.
func serve(ctx context.Context, listener net.Listener, s settings, log *slog.Logger, started func()) error {
	defer listener.Close()
	for _, odd := range s.file.Warnings {
		log.WarnContext(ctx, "odd in the configuration", "place", odd.String())
	}
	kinds, programs, err := s.code.kinds(s.file)
	if err != nil {
		return err
	}
	registry := newRegistry()
	timing := txn.DefaultTiming()
	if err := timing.Validate(kinds); err != nil {
		return err
	}
	store, err := openStore(ctx, s.DatabaseURL, programs, retainedBodies(kinds), timing, log)
	if err != nil {
		return err
	}
	defer store.Close()
	registry.MustRegister(store.Collector())
	mq, err := rocketmq.New(s.broker.config(log))
	if err != nil {
		return err
	}
	registry.MustRegister(rocketmq.NewCollector(mq))
	topics, err := s.code.topics(s.file)
	if err != nil {
		return err
	}
	router := routing.New(routing.Config{Topics: topics, Kinds: kinds, Timing: timing}, mq, store, registry, log)
	metrics := txn.NewMetrics(registry)
	deliveries := delivery.New(delivery.Ports{
		Decisions: store, Begun: store, Gone: store, Halves: store, Outbox: store, Lines: store, Waiting: store, Pending: store, Rows: store,
		Broker: mq, Probes: mq, Copies: mq, Queues: router,
	}, timing, metrics, registry, log)
	flow := txn.Config{MaxInFlight: s.MaxInFlight, Timing: timing, Reached: failpoint.Hook()}
	service := txn.NewService(flow, kinds, router, mq, store, deliveries, metrics, log)
	sender := newMessages(s, topics, router, mq, metrics, registry, log)
	ready := readiness{store, mq, router, deliveries, slices.ContainsFunc(kinds, func(k *txn.Kind) bool { return k.Via == txn.ViaOutbox || k.Fallback == txn.FallbackOutbox })}
	readyMetrics := &readyMetrics{readiness: ready, within: timing.ReadyWithin, stopping: ctx.Done()}
	registry.MustRegister(readyMetrics)
	handler, err := http.New(http.Config{
		Transactions: service, Messages: sender, Routes: router, Readiness: ready, Kinds: kinds, Timing: timing, OpenAPI: s.code.OpenAPI, Gatherer: registry, Registerer: registry, Log: log, Hosts: s.hosts(), Stopping: ctx.Done(),
	})
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	producer := txn.ProducerOf(mq.NewUniqKey())
	_ = store.Register(startCtx, producer) // before there are half messages; KeepTrack tries again
	err = mq.Start(startCtx, router.Topics(), deliveries.Checkback)
	ready.logMissing(startCtx, log)
	cancel()
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "serving", "address", listener.Addr().String(), "kinds", len(kinds), "version", version())
	if started != nil {
		started()
	}

	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var loops errgroup.Group
	tracking, stopTracking := context.WithCancel(context.WithoutCancel(ctx)) // until the last delivery has ended
	defer stopTracking()
	loops.Go(func() error { defer stopTracking(); return deliveries.Run(background) })
	loops.Go(func() error { return router.Run(background) })
	loops.Go(func() error { readyMetrics.run(background); return nil })
	loops.Go(func() error { store.Marks.Write(background); return nil })
	loops.Go(func() error { store.residue.Run(background); return nil })
	loops.Go(func() error { store.KeepTrack(tracking); return nil })
	if s.Retention > 0 {
		sweeper := retention.New(store.DB, s.Retention, registry, log)
		loops.Go(func() error { sweeper.Run(background); return nil })
	}
	stopping := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() {
		stopping <- time.Now()
		log.InfoContext(ctx, "stopping", "listener_closes_in", s.DrainDelay.String(), "requests_end_within", s.ShutdownTimeout.String())
	})
	err = http.Serve(ctx, http.NewServer(handler, log, timing, kinds), listener, http.Stop{DrainDelay: s.DrainDelay, Timeout: s.ShutdownTimeout})
	began := time.Now()
	if ctx.Err() != nil {
		began = <-stopping
	}
	s.drain(context.WithoutCancel(ctx), sender, log, began)
	stopBackground()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, mq.Close(closing), loops.Wait())
	log.InfoContext(ctx, "stopped")
	return err
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "txsvc_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version()},
	})
	info.Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return registry
}

// readiness asks everything that the service depends on.
type readiness struct {
	store      *store
	mq         *rocketmq.Client
	router     *routing.Router
	deliveries *delivery.Service
	spared     bool // there are kinds that go on without half messages
}

// Ready implements http.Readiness. One broker of several that is away only degrades the service: keys of its queues are
// sent to others, or refused, as their selectors say. So does one that stores no half messages, where kinds go on without.
func (r readiness) Ready(ctx context.Context) []http.Check {
	standbys := make(chan []http.Check, 1)
	go func() { standbys <- r.standbys(ctx) }() // it takes long when they are away
	db := http.Check{Name: "database", OK: true}
	if err := r.store.Check(ctx); err != nil {
		db.OK, db.Detail = false, err.Error()
	}
	brokers := r.mq.Check(ctx, nil)
	others := slices.ContainsFunc(brokers, func(c rocketmq.Check) bool { return c.Err == nil && isBroker(c) })
	checks := []http.Check{db}
	if s := <-standbys; db.OK {
		checks = append(checks, s...)
	}
	for _, c := range brokers {
		checks = append(checks, toCheck(c.Name, c.Err, c.Detail, isBroker(c) && (others || c.Half && r.spared)))
	}
	for _, topic := range r.router.Topics() {
		h := r.router.Health(ctx, topic)
		checks = append(checks, toCheck("topic:"+topic, h.Err, h.Detail, false))
		if h.Err == nil && h.Degraded {
			last := &checks[len(checks)-1]
			last.OK, last.Degrades = false, true
		}
	}
	for _, d := range r.deliveries.Degraded() {
		checks = append(checks, http.Check{Name: d.Name, Detail: d.Detail, Degrades: true})
	}
	return checks
}

// standbys is a check only where COMMIT waits for standbys.
func (r readiness) standbys(ctx context.Context) []http.Check {
	waits, err := r.store.Confirming(ctx)
	switch {
	case err != nil:
		return []http.Check{{Name: "standbys", Detail: "no synchronous standby confirms what is committed"}}
	case waits:
		return []http.Check{{Name: "standbys", OK: true, Detail: "commits are confirmed"}}
	default:
		return nil
	}
}

func isBroker(c rocketmq.Check) bool { return strings.HasPrefix(c.Name, "broker") }

func toCheck(name string, err error, detail string, degrades bool) http.Check {
	check := http.Check{Name: name, OK: err == nil, Detail: detail, Degrades: err != nil && degrades}
	if words := txn.WordsOf(err); words != "" {
		check.Detail = words
	} else if err != nil {
		check.Detail = "does not answer"
	}
	return check
}

// logMissing says at the start what /readyz would say.
func (r readiness) logMissing(ctx context.Context, log *slog.Logger) {
	for _, c := range r.Ready(ctx) {
		if !c.OK {
			log.WarnContext(ctx, "not ready yet", "dependency", c.Name, "detail", c.Detail)
		}
	}
}
