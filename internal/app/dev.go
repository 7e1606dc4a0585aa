package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/migrations"
)

type devCommand struct {
	Dir          string `default:".txsvc" help:"Where PostgreSQL and RocketMQ keep their data."`
	PostgresPort int    `help:"0: a free one, kept between runs."`
	NamesrvPort  int    `help:"0: a free one, kept between runs."`
	BrokerPort   int    `help:"0: a free one, kept between runs."`
	Queues       int    `default:"8" help:"Queues of the topics that are created."`
	server
	producer
}

const (
	devStartTimeout = 5 * time.Minute // the first start fetches 110 MB
	devStopTimeout  = 20 * time.Second
)

// Run starts PostgreSQL and RocketMQ, creates tables and topics, and serves until a signal comes.
func (c *devCommand) Run(ctx context.Context, code Code, out output) (err error) {
	c.DrainDelay = 0 // nothing sends requests here that could go elsewhere
	if err := c.server.validate(); err != nil {
		return err
	}
	file, err := c.file(code)
	if err != nil {
		return err
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	log := c.logger(out.stderr)
	progress := func(step string) { fmt.Fprintln(out.stdout, "txsvc dev:", step) }
	starting, cancel := context.WithTimeout(ctx, devStartTimeout)
	defer cancel()
	stack, err := devstack.Start(starting, devstack.Options{
		Dir: c.Dir, PostgresPort: c.PostgresPort, NamesrvPort: c.NamesrvPort, BrokerPort: c.BrokerPort, Progress: progress, Logger: log,
	})
	if err != nil {
		return err
	}
	if err := c.forget(); err != nil { // a run that was killed may have left it
		return errors.Join(err, stack.Stop(starting))
	}
	defer func() {
		progress("stopping PostgreSQL and RocketMQ; the broker takes about ten seconds")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStopTimeout)
		defer cancel()
		err = errors.Join(err, c.forget(), stack.Stop(stopping))
	}()
	s := settings{
		code,
		database{stack.DatabaseURL()},
		broker{cluster{Nameservers: stack.Nameservers()}, c.producer}, c.server, file,
	}
	progress("creating tables and topics")
	if err := c.prepare(starting, s, progress); err != nil {
		return err
	}
	return serve(ctx, listener, s, log, func() {
		if err := c.tellOthers(s, listener.Addr()); err != nil {
			log.ErrorContext(ctx, "other commands cannot be told what runs", "error", err)
		}
		c.welcome(out.stdout, listener.Addr().String(), s)
	})
}

func (c *devCommand) file(code Code) (*config.File, error) {
	if c.Config != "" {
		return config.Load(c.Config, code.Selectors)
	}
	return config.Dev()
}

// prepare creates the tables and topics of the kinds.
func (c *devCommand) prepare(ctx context.Context, s settings, progress func(string)) error {
	moves, err := migrations.MoveStrays(ctx, s.DatabaseURL)
	for _, move := range moves {
		progress(move + " (where kinds look for it: txsvc is the service's own)")
	}
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, s.DatabaseURL, migrations.Core, migrations.Example); err != nil {
		return err
	}
	if _, _, err := s.code.kinds(s.file); err != nil {
		return err
	}
	admin := broker{s.cluster, producer{Group: "txsvc-admin", Transport: string(rocketmq.TransportNative)}}
	mq, err := rocketmq.New(admin.config(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer func() { _ = mq.Close(context.WithoutCancel(ctx)) }()
	if err := mq.Start(ctx, nil, nil); err != nil {
		return err
	}
	for _, topic := range topicsOf(s.file) {
		if _, err := mq.Queues(ctx, topic); err == nil {
			continue // it exists since an earlier run
		}
		if err := mq.CreateTopic(ctx, topic, c.Queues); err != nil {
			return fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	return nil
}

// welcome prints commands to try: with the shipped order where it is served, else with the topic of the first kind.
func (c *devCommand) welcome(w io.Writer, addr string, s settings) {
	topic := topicsOf(s.file)[0]
	order, shipped := s.file.Kinds["order.create"]
	if shipped = shipped && order.Path == "/v1/orders" && order.Local.Handler == "orders"; shipped {
		topic = order.Topic
	}
	dir := ""
	if c.Dir != ".txsvc" {
		dir = " --dir " + c.Dir
	}
	fmt.Fprintf(w, "txsvc dev: ready on http://%s\n\nIn another terminal, watch the topic:\n\n  bin/txsvc tail %s%s\n", addr, topic, dir)
	if shipped {
		fmt.Fprintf(w, `
and post an order:

  curl -s http://%s/v1/orders -H 'Content-Type: application/json' -d '{
    "shard_key": "customer-7",
    "payload": {"customer": "customer-7", "currency": "EUR",
                "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}}'
`, addr)
	}
	env := filepath.Join(c.Dir, devFile)
	fmt.Fprintf(w, "\nFor psql and others: . %s; psql \"$TXSVC_DATABASE_URL\". Ctrl-C stops everything; the data is kept.\n", env)
}
