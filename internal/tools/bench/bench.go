package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/verify"
	"github.com/txsvc/txsvc/migrations"
)

//go:embed kinds.yaml
var kinds []byte

// queues of each topic.
const queues = 8

// settle bounds the wait for rows that are pending at the end.
const settle = 2 * time.Minute

// postgresConfig keeps checkpoints out of the measurements: each turn begins with one.
var postgresConfig = map[string]string{"max_wal_size": "16GB", "checkpoint_timeout": "1h"}

// javaOptions give the broker a young generation that fits the load, as docs/operations.md recommends.
var javaOptions = []string{"-Xmx512m", "-Xms512m", "-Xmn256m"}

// bench is one run.
type bench struct {
	options
	dir            string // for everything, temporary
	txsvc, handler string // binaries
	kinds          string // file
	stack          *devstack.Stack
	databaseURL    string
	nameserver     string
	javaClasspath  string
	brokerName     string
	db             *pgx.Conn
	mq             *remoting.Client
	audit          *verify.Audit
	kept           kept
	list           []*contender
	closers        []func()
}

func run(ctx context.Context, o options) (*results, error) {
	b := &bench{options: o, brokerName: devstack.BrokerName(0)}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	r := &results{Options: o, Machine: b.machine(ctx), Began: time.Now().UTC()}
	if err := b.closedLoop(ctx); err != nil {
		return nil, err
	}
	if err := b.openLoop(ctx); err != nil {
		return nil, err
	}
	b.endAll()
	if err := b.verify(ctx); err != nil {
		return nil, err
	}
	r.Took = time.Since(r.Began).Seconds()
	r.add(b.list)
	return r, nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func (b *bench) onClose(f func()) { b.closers = append(b.closers, f) }

func (b *bench) close() {
	b.endAll()
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

// endAll ends the contenders that stay between turns.
func (b *bench) endAll() {
	for _, c := range b.list {
		if c.running != nil {
			c.running.stop()
			c.running = nil
		}
	}
}

// prepare builds the programs, starts the stack, and makes tables and topics.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "txsvc-bench-*"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	b.onClose(func() { _ = os.RemoveAll(b.dir) })
	b.txsvc, b.handler, b.kinds = filepath.Join(b.dir, "txsvc"), filepath.Join(b.dir, "handler"), filepath.Join(b.dir, "kinds.yaml")
	if err := os.WriteFile(b.kinds, kinds, 0o600); err != nil {
		return fmt.Errorf("writing the kinds: %w", err)
	}
	if b.list, err = choose(b.contenders(), names(b.Only)); err != nil {
		return err
	}
	if err := errors.Join(b.build(ctx, b.Root, b.txsvc, "./cmd/txsvc"), b.build(ctx, b.Root, b.handler, "./internal/tools/bench/handler")); err != nil {
		return err
	}
	for _, c := range b.list {
		if c.build != nil {
			if err := c.build(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	if err := b.startStack(ctx); err != nil {
		return err
	}
	if err := errors.Join(migrations.Up(ctx, b.databaseURL, migrations.Core, migrations.Example), makeTables(ctx, b.db, b.list)); err != nil {
		return err
	}
	if err := b.makeTopics(ctx); err != nil {
		return err
	}
	return b.startAudit(ctx)
}

// build builds a Go program of the module in dir, without the race detector, which a test of this package may have.
func (b *bench) build(ctx context.Context, dir, binary, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-race=false", "-o", binary, program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return nil
}

func (b *bench) startStack(ctx context.Context) (err error) {
	b.stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(b.dir, "stack"), Progress: func(step string) { say("%s", step) },
		PostgresConfig: postgresConfig, JavaOptions: javaOptions, ClassArchive: true,
	})
	if err != nil {
		return err
	}
	b.onClose(b.stack.Kill)
	b.databaseURL, b.nameserver = b.stack.DatabaseURL(), b.stack.Nameservers()[0]
	if b.db, err = pgx.Connect(ctx, b.databaseURL); err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	b.onClose(func() { _ = b.db.Close(context.WithoutCancel(ctx)) })
	return nil
}

func (b *bench) makeTopics(ctx context.Context) (err error) {
	b.mq, err = remoting.New(remoting.Config{Nameservers: b.stack.Nameservers(), Group: "bench-admin"})
	if err != nil {
		return err
	}
	b.onClose(func() { _ = b.mq.Close(context.WithoutCancel(ctx)) })
	if err := b.mq.Start(ctx); err != nil {
		return err
	}
	made := map[string]bool{}
	for _, c := range b.contenders() { // the file of kinds names all topics
		if c.topic == "" || made[c.topic] {
			continue
		}
		made[c.topic] = true
		if err := b.mq.CreateTopic(ctx, c.topic, queues); err != nil {
			return fmt.Errorf("making the topic %s: %w", c.topic, err)
		}
	}
	return nil
}

func (b *bench) startAudit(ctx context.Context) (err error) {
	var sorts []verify.Audited
	for _, c := range b.list {
		if c.topic != "" {
			sorts = append(sorts, verify.Audited{Kind: c.kind, Topic: c.topic, Table: c.table, Ordered: c.ordered})
		}
	}
	stack := verify.Stack{DatabaseURL: b.databaseURL, Broker: verify.Broker{Nameservers: b.stack.Nameservers()}}
	if b.audit, err = verify.StartAudit(ctx, stack, settle, sorts...); err != nil {
		return err
	}
	b.onClose(b.audit.Close)
	return nil
}

// closedLoop measures throughput. Each round begins with another contender. Round 0 does not count, because the broker's JVM has to
// compile first, and takes a second or two of its CPU for that.
func (b *bench) closedLoop(ctx context.Context) error {
	first := 0
	if b.Cold == 0 {
		first = 1
	}
	for round := first; round <= b.Rounds; round++ {
		for i := range b.list {
			c := b.list[(i+round)%len(b.list)]
			warm := b.Warm
			if round == 0 {
				warm = max(b.Warm, c.warm, b.Cold)
			}
			t, err := b.take(ctx, c, 0, warm)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				c.turns = append(c.turns, t)
			}
			say("round %d: %-8s %6.0f/s  p99 %6.1f ms  µs: service %4.0f  postgres %4.0f  broker %4.0f  generator %3.0f  WAL %5.0f B  behind %d  errors %d",
				round, c.name, t.PerSecond, t.P99, t.Service, t.Postgres, t.Broker, t.Generator, t.WAL, t.Behind, t.Errors)
		}
	}
	return nil
}

// openLoop measures latency at parts of what each contender reached in the closed loop.
func (b *bench) openLoop(ctx context.Context) error {
	for _, text := range names(b.Rates) {
		part, err := strconv.ParseFloat(text, 64)
		if err != nil || part <= 0 {
			return fmt.Errorf("-rates: %q is not a positive number", text)
		}
		for round := range b.OpenRounds {
			for i := range b.list {
				c := b.list[(i+round)%len(b.list)]
				t, err := b.take(ctx, c, part*median(c.closed(), turn.perSecond), b.Warm)
				if err != nil {
					return fmt.Errorf("%s at %s of its capacity: %w", c.name, text, err)
				}
				t.Part = part
				c.turns = append(c.turns, t)
				say("at %s, round %d: %-8s %6.0f/s  p50 %5.1f  p99 %6.1f  p99.9 %6.1f ms  errors %d", text, round+1, c.name, t.PerSecond, t.P50, t.P99, t.P999, t.Errors)
			}
		}
	}
	return nil
}

// verify compares answers, rows and messages of all turns.
func (b *bench) verify(ctx context.Context) error {
	if b.NoVerify {
		return nil
	}
	say("comparing answers, rows and messages")
	found, err := b.audit.Check(ctx, b.Linger)
	if err != nil {
		return fmt.Errorf("the run could not be verified: %w", err)
	}
	for _, c := range b.list {
		switch {
		case c.kind != "":
			c.found = found[c.kind]
		case c.topic != "":
			c.found = found[c.topic]
			c.found.Answered = c.answered
		default:
			if c.found, err = b.count(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// count checks a contender without messages: what it has answered is in its table.
func (b *bench) count(ctx context.Context, c *contender) (*verify.Findings, error) {
	f := &verify.Findings{Answered: c.answered, Classes: map[string]int{}}
	if err := b.db.QueryRow(ctx, "select count(*) from "+c.table).Scan(&f.Committed); err != nil {
		return nil, fmt.Errorf("counting the rows of %s: %w", c.name, err)
	}
	if f.Committed < f.Answered {
		f.Classes["committed_without_row"] = f.Answered - f.Committed
	}
	return f, nil
}
