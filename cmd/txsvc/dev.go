package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/devstack"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/txn"
	"github.com/txsvc/txsvc/migrations"
)

type devCommand struct {
	Dir          string `default:".txsvc" help:"Where PostgreSQL and RocketMQ keep their data."`
	PostgresPort int    `help:"0: a free one, kept between runs."`
	NamesrvPort  int    `help:"0: a free one, kept between runs."`
	BrokerPort   int    `help:"0: a free one, kept between runs."`
	Queues       int    `default:"8" help:"Queues of the topics that are created."`
	server
	Group     string `env:"TXSVC_ROCKETMQ_GROUP" default:"txsvc" help:"Producer group. $TXSVC_ROCKETMQ_GROUP"`
	Transport string `env:"TXSVC_ROCKETMQ_TRANSPORT" default:"native" enum:"native,library" help:"How half messages are sent: native or library. $TXSVC_ROCKETMQ_TRANSPORT"`
}

const (
	devStartTimeout = 5 * time.Minute // the first start fetches 110 MB
	devStopTimeout  = 20 * time.Second
	devFile         = "env" // in Dir: how to reach what runs
)

// Run starts PostgreSQL and RocketMQ, creates tables and topics, and serves until a signal comes.
func (c *devCommand) Run(ctx context.Context, out output) (err error) {
	if err := c.server.validate(); err != nil {
		return err
	}
	file, err := c.kinds()
	if err != nil {
		return err
	}
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
	defer func() {
		progress("stopping PostgreSQL and RocketMQ")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), devStopTimeout)
		defer cancel()
		err = errors.Join(err, os.Remove(filepath.Join(c.Dir, devFile)), stack.Stop(stopping))
	}()
	s := settings{
		database{stack.DatabaseURL()},
		broker{Nameservers: stack.Nameservers(), Group: c.Group, Transport: c.Transport}, c.server, file,
	}
	progress("creating tables and topics")
	if err := c.prepare(starting, s); err != nil {
		return err
	}
	if err := c.writeDevFile(s); err != nil {
		return err
	}
	return serve(ctx, s, log, func(addr string) { c.welcome(out.stdout, addr, s) })
}

func (c *devCommand) kinds() (*config.File, error) {
	if c.Config != "" {
		return config.Load(c.Config)
	}
	return config.Dev()
}

// prepare creates what the kinds need.
func (c *devCommand) prepare(ctx context.Context, s settings) error {
	if err := migrations.Up(ctx, s.DatabaseURL, migrations.Core, migrations.Example); err != nil {
		return err
	}
	kinds, _, err := buildKinds(s.file)
	if err != nil {
		return err
	}
	quiet := logging{LogLevel: "error"}.logger(io.Discard)
	mqConfig := s.broker.config(quiet)
	mqConfig.Group, mqConfig.Transport, mqConfig.Timing = "txsvc-admin", rocketmq.TransportNative, txn.DefaultTiming()
	mq, err := rocketmq.New(mqConfig)
	if err != nil {
		return err
	}
	defer func() { _ = mq.Close(context.WithoutCancel(ctx)) }()
	if err := mq.Start(ctx, nil, nil); err != nil {
		return err
	}
	for _, topic := range topicsOf(kinds) {
		if _, err := mq.Queues(ctx, topic); err == nil {
			continue // kept from an earlier run
		}
		if err := mq.CreateTopic(ctx, topic, c.Queues); err != nil {
			return fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	return nil
}

// writeDevFile tells other commands how to reach what runs.
func (c *devCommand) writeDevFile(s settings) error {
	text := fmt.Sprintf("TXSVC_DATABASE_URL='%s'\nTXSVC_NAMESERVERS='%s'\n", s.DatabaseURL, strings.Join(s.Nameservers, ","))
	return os.WriteFile(filepath.Join(c.Dir, devFile), []byte(text), 0o600)
}

// readDevFile returns the name servers of a running txsvc dev, or none.
func readDevFile(dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, devFile)) //nolint:gosec // the directory is the user's own choice
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "TXSVC_NAMESERVERS="); ok {
			return strings.Split(strings.Trim(value, "'"), ",")
		}
	}
	return nil
}

func (c *devCommand) welcome(w io.Writer, addr string, s settings) {
	fmt.Fprintf(w, `txsvc dev: ready on http://%[1]s

In another terminal, watch the topic:

  bin/txsvc tail orders

and post an order:

  curl -s http://%[1]s/v1/orders -H 'Content-Type: application/json' -d '{
    "shard_key": "customer-7",
    "payload": {"customer": "customer-7", "currency": "EUR",
                "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}}'

PostgreSQL and the name server (%[2]s) are described in %[3]s. Ctrl-C stops everything; the data is kept.
`, addr, strings.Join(s.Nameservers, ","), filepath.Join(c.Dir, devFile))
}
