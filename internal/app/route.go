package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/postgres/accepted"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/routing"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/txn"
)

// topics makes the destinations of messages that belong to no kind.
func (c Code) topics(file *config.File) (map[string]txn.Destination, error) {
	topics := make(map[string]txn.Destination, len(file.Topics))
	for name, topic := range file.Topics {
		to, err := c.destination(name, topic.Selector, false)
		if err != nil {
			return nil, err
		}
		topics[name] = to
	}
	return topics, nil
}

type routeCommand struct {
	Show   routeShowCommand   `cmd:"" default:"withargs" help:"Show the queue of a key, or how many keys spread over the queues."`
	Accept routeAcceptCommand `cmd:"" help:"Make the queues that a topic has now those that selectors with on_change: refuse choose from."`
}

// routeSource is where the commands learn of selectors and queues.
type routeSource struct {
	Config string `env:"TXSVC_CONFIG" placeholder:"FILE" help:"YAML file of kinds and topics; without one, that of a running txsvc dev."`
	Dir    string `default:".txsvc" help:"Without name servers: the directory of a running txsvc dev."`
	database
	cluster
	logging
}

// complete fills in the settings of a running txsvc dev.
func (s *routeSource) complete(ctx context.Context, out output) error {
	if s.LogLevel == "info" {
		s.LogLevel = "warn" // for people
	}
	return ofDev{cluster: &s.cluster, databaseURL: &s.DatabaseURL, config: &s.Config}.complete(ctx, out, s.Dir)
}

func (s *routeSource) file(code Code) (*config.File, error) {
	if s.Config == "" {
		return nil, errors.New("TXSVC_CONFIG is not set: it names the YAML file of kinds and topics")
	}
	return config.Load(s.Config, code.Selectors)
}

// destinations returns how the topic's messages are routed: those without a kind first, and then by kind.
func (s *routeSource) destinations(code Code, topic string) (plain txn.Destination, kinds []*txn.Kind, err error) {
	file, err := s.file(code)
	if err != nil {
		return plain, nil, err
	}
	topics, err := code.topics(file)
	if err != nil {
		return plain, nil, err
	}
	all, _, err := code.kinds(file)
	if err != nil {
		return plain, nil, err
	}
	plain, ok := topics[topic]
	if !ok {
		return plain, nil, fmt.Errorf("%s has no topic %s; it has %s", file.Name, topic, strings.Join(topicsOf(file), ", "))
	}
	for _, k := range all {
		if k.Topic == topic {
			kinds = append(kinds, k)
		}
	}
	return plain, kinds, nil
}

// connected calls do with a client that has asked the name servers.
func (s *routeSource) connected(ctx context.Context, out output, do func(*rocketmq.Client) error) error {
	return s.cluster.connected(ctx, s.Dir, "txsvc-route", s.logger(out.stderr), do)
}

// withAccepted calls do with the accepted lists of the database.
func (s *routeSource) withAccepted(ctx context.Context, out output, do func(*accepted.Lists) error) error {
	db, err := openDatabase(ctx, s.DatabaseURL, txn.DefaultTiming(), s.logger(out.stderr))
	if err != nil {
		return err
	}
	defer db.Close()
	return do(accepted.New(db))
}

type routeShowCommand struct {
	Topic   string            `arg:"" help:"The topic."`
	Kind    string            `help:"Use the selector of this kind in place of the topic's own."`
	Key     string            `short:"k" help:"The shard key of one message."`
	Stdin   bool              `help:"Read one shard key per line, and show how they spread over the queues."`
	Arg     string            `placeholder:"JSON" help:"selector_arg of the message, or of all of them."`
	Payload string            `placeholder:"JSON" help:"Payload, for selectors that look at it."`
	Header  map[string]string `placeholder:"NAME=VALUE" help:"Headers of the request, for selectors that look at one."`
	Queues  int               `help:"Do not look at the topic: pretend that it has so many queues on each broker."`
	Brokers int               `default:"1" help:"With --queues: on how many brokers (broker-a, broker-b, …)."`
	JSON    bool              `name:"json" help:"Print JSON."`
	routeSource
}

// Run prints where messages would go. Nothing is sent.
func (c *routeShowCommand) Run(ctx context.Context, code Code, out output) error {
	if err := errors.Join(c.validate(), c.complete(ctx, out)); err != nil {
		return err
	}
	d, err := c.destination(code)
	if err != nil {
		return err
	}
	queues, err := c.list(ctx, out, d)
	if err != nil {
		return err
	}
	if c.Stdin {
		return c.spread(os.Stdin, out.stdout, d, queues)
	}
	return c.one(out.stdout, d, queues)
}

func (c *routeShowCommand) validate() error {
	switch {
	case c.Stdin == (c.Key != ""):
		return errors.New("give either --key or --stdin")
	case c.Arg != "" && !json.Valid([]byte(c.Arg)):
		return errors.New("--arg is not JSON; a string needs its quotes: --arg '\"canary\"'")
	case c.Payload != "" && !json.Valid([]byte(c.Payload)):
		return errors.New("--payload is not JSON")
	case c.Queues < 0 || c.Queues > 0 && (c.Brokers < 1 || c.Brokers > 26):
		return errors.New("--queues must be positive, and --brokers between 1 and 26")
	}
	return nil
}

// destination returns the selector that is meant.
func (c *routeShowCommand) destination(code Code) (txn.Destination, error) {
	plain, kinds, err := c.destinations(code, c.Topic)
	if err != nil || c.Kind == "" {
		return plain, err
	}
	for _, k := range kinds {
		if k.Name == c.Kind {
			return k.Destination, nil
		}
	}
	return plain, fmt.Errorf("topic %s has no kind %q", c.Topic, c.Kind)
}

// list returns the queues that replicas choose from.
func (c *routeShowCommand) list(ctx context.Context, out output, d txn.Destination) (queues []txn.Queue, err error) {
	if c.Queues > 0 {
		for b := range c.Brokers {
			for id := range c.Queues {
				queues = append(queues, txn.Queue{Broker: devstack.BrokerName(b), ID: id})
			}
		}
		return queues, nil
	}
	if d.Java {
		err := c.connected(ctx, out, func(mq *rocketmq.Client) error {
			java, err := mq.JavaQueues(ctx, c.Topic)
			if java.Order != "" || d.OnChange != txn.OnChangeRefuse {
				queues = java.Queues
			}
			return told(err)
		})
		if err != nil || len(queues) > 0 {
			return queues, err
		}
	}
	if d.OnChange == txn.OnChangeRefuse && c.DatabaseURL != "" {
		err := c.withAccepted(ctx, out, func(accepted *accepted.Lists) error {
			lists, err := accepted.AcceptedQueues(ctx, []string{c.Topic})
			queues = lists[c.Topic].Queues
			return err
		})
		if err != nil || len(queues) > 0 {
			return queues, err
		}
	}
	err = c.connected(ctx, out, func(mq *rocketmq.Client) error {
		queues, err = mq.Queues(ctx, c.Topic)
		return told(err)
	})
	return queues, err
}

// told returns an error for people at a terminal, without its code.
func told(err error) error {
	if words := txn.WordsOf(err); words != "" {
		return errors.New(words)
	}
	return err
}

func (c *routeShowCommand) input(key string) txn.SelectorInput {
	header := make(http.Header)
	for name, value := range c.Header {
		header.Set(name, value)
	}
	in := txn.SelectorInput{ShardKey: key, Header: header.Get}
	if c.Arg != "" {
		in.Arg = json.RawMessage(c.Arg)
	}
	if c.Payload != "" {
		in.Payload = json.RawMessage(c.Payload)
	}
	return in
}

func (c *routeShowCommand) one(w io.Writer, d txn.Destination, queues []txn.Queue) error {
	if wrong := txn.CheckShardKey(c.Key); len(wrong) > 0 {
		return fmt.Errorf("--key %s", wrong[0].Message)
	}
	route, err := d.Selector.Select(queues, c.input(c.Key))
	if err != nil {
		return told(err)
	}
	if c.JSON {
		return printRouteJSON(w, c.Topic, route, len(queues))
	}
	_, err = fmt.Fprintf(w, "queue     %s\nlane      %s\nselector  %s\nreason    %s\nqueues    %d\n",
		route.Queue, orDash(route.Lane), route.Selector, route.Reason, len(queues))
	return err
}

// spread counts keys, one per line; empty lines are none.
func (c *routeShowCommand) spread(r io.Reader, w io.Writer, d txn.Destination, queues []txn.Queue) error {
	s, in := routing.NewSpread(queues, d.Selector), c.input("")
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if in.ShardKey = lines.Text(); in.ShardKey == "" {
			continue
		}
		if wrong := txn.CheckShardKey(in.ShardKey); len(wrong) > 0 {
			return fmt.Errorf("line %d: the key %s", n, wrong[0].Message)
		}
		s.Add(in)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading keys: %w", err)
	}
	if c.JSON {
		return printSpreadJSON(w, s.Distribution())
	}
	return printSpread(w, s.Distribution())
}
