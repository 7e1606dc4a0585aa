package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txsvc/txsvc/internal/rocketmq"
)

type tailCommand struct {
	Topic     string `arg:"" help:"The topic."`
	FromStart bool   `help:"Begin with the oldest message instead of the next."`
	Count     int    `short:"n" help:"Stop after so many messages; 0 goes on."`
	JSON      bool   `name:"json" help:"Print one JSON object per line."`
	Dir       string `default:".txsvc" help:"Without name servers: the directory of a running txsvc dev."`
	cluster
	logging
}

// Run prints messages until a signal comes.
func (c *tailCommand) Run(ctx context.Context, out output) error {
	if err := (ofDev{cluster: &c.cluster}).complete(ctx, out, c.Dir); err != nil {
		return err
	}
	if c.LogLevel == "info" {
		c.LogLevel = "warn" // for people
	}
	return c.cluster.connected(ctx, c.Dir, "txsvc-tail", c.logger(out.stderr), func(mq *rocketmq.Client) error {
		return c.print(ctx, mq, out.stdout)
	})
}

// connected calls do with a client that has asked the name servers. The group is one of its own: it is never asked about
// half messages. dir is where a txsvc dev was looked for.
func (c cluster) connected(ctx context.Context, dir, group string, log *slog.Logger, do func(*rocketmq.Client) error) error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("%w; no txsvc dev runs in %s", err, dir)
	}
	b := broker{cluster: c, producer: producer{Group: group, Transport: string(rocketmq.TransportNative)}}
	mq, err := rocketmq.New(b.config(log))
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = mq.Close(closing)
	}()
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	err = mq.Start(startCtx, nil, nil)
	cancel()
	if err != nil {
		return err
	}
	return do(mq)
}

func (c *tailCommand) print(ctx context.Context, mq *rocketmq.Client, w io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	printed := 0
	return mq.Tail(ctx, c.Topic, c.FromStart, func(m rocketmq.Tailed) error {
		write := printLine
		if c.JSON {
			write = printJSON
		}
		if err := write(w, m); err != nil {
			return err
		}
		if printed++; printed == c.Count {
			stop()
		}
		return nil
	})
}

func printLine(w io.Writer, m rocketmq.Tailed) error {
	_, err := fmt.Fprintf(w, "%s  %s  offset %d  shard_key %s  id %s  tag %s  %s\n", m.StoredAt.UTC().Format("15:04:05.000"),
		m.Message.Queue, m.Offset, orDash(m.Message.ShardKey), orDash(m.Message.TxID), orDash(m.Message.Tag), printable(m.Message.Body))
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printable is the body on one line, without what would steer a terminal.
func printable(body []byte) string {
	if !utf8.Valid(body) {
		return fmt.Sprintf("(%d bytes)", len(body))
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return -1
		default:
			return r
		}
	}, string(body))
}

func printJSON(w io.Writer, m rocketmq.Tailed) error {
	line := map[string]any{
		"stored_at": m.StoredAt.UTC(), "broker": m.Message.Queue.Broker, "queue": m.Message.Queue.ID, "offset": m.Offset,
		"shard_key": m.Message.ShardKey, "id": m.Message.TxID, "kind": m.Message.Kind, "tag": m.Message.Tag,
		"keys": m.Message.Keys, "properties": m.Properties, "message_id": m.Message.UniqKey, "body": string(m.Message.Body),
	}
	return json.NewEncoder(w).Encode(line)
}
