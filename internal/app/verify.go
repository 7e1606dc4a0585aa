package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/txsvc/txsvc/internal/tools/verify"
)

type verifyCommand struct {
	URL         []string `name:"url" env:"TXSVC_VERIFY_URL,TXSVC_URL" placeholder:"URL" help:"Base URLs of the replicas, comma-separated; default: of TXSVC_LISTEN, of a running txsvc dev, or http://127.0.0.1:8080."`
	Listen      string   `hidden:"" env:"TXSVC_LISTEN" help:"Where the service listens, in place of --url."`
	Header      []string `env:"TXSVC_VERIFY_HEADER" placeholder:"NAME:VALUE" help:"Header of each request, for a proxy that checks keys."`
	DatabaseURL string   `env:"TXSVC_DATABASE_URL" placeholder:"URL" help:"PostgreSQL URL. Without it, rows are asked for with GET."`
	cluster
	Dir string `default:".txsvc" help:"Without name servers: the directory of a running txsvc dev."`

	Kind            map[string]int    `mapsep:"," placeholder:"NAME=WEIGHT" help:"Kinds to post, with weights; default: all that a payload can be made for."`
	Payload         map[string]string `mapsep:"," placeholder:"KIND=FILE" help:"Template of a kind's payload; see docs/verify.md."`
	RejectedPayload map[string]string `mapsep:"," placeholder:"KIND=FILE" help:"Template of a payload that the kind's local transaction refuses."`
	SelectorArg     map[string]string `mapsep:";" placeholder:"KIND=JSON" help:"Template of a kind's selector_arg."`
	Table           map[string]string `mapsep:"," placeholder:"KIND=TABLE" help:"Where a kind's local transaction writes, with the transaction's id in the column id; each committed transaction must be there, and no other."`
	Ordered         []string          `placeholder:"KIND" help:"Kinds whose order is promised, where GET /v1/kinds does not tell."`

	Count          int           `short:"n" help:"Transactions; 0: as many as --duration allows. Default: 10000 when neither is given."`
	Duration       time.Duration `short:"d" help:"How long to post."`
	Rate           float64       `help:"Transactions per second; 0: as fast as --concurrency allows."`
	Concurrency    int           `short:"c" default:"32" help:"Transactions worked on at once."`
	Keys           int           `default:"1000" help:"Number of shard keys."`
	Distribution   string        `default:"uniform" enum:"uniform,zipf,hot" help:"Of the shard keys: uniform, zipf or hot."`
	Seed           uint64        `help:"Of kinds, keys and all else that is drawn; 0: one is chosen."`
	RunName        string        `name:"run" help:"Name of the run, part of every id; default: from the time."`
	RequestTimeout time.Duration `default:"15s" help:"Until an answer is given up."`
	RetryFor       time.Duration `default:"2m" help:"How long one transaction is tried before it is left undecided."`
	Plain          bool          `help:"Post plainly: no duplicates, hang-ups, rejected and other odd requests."`

	Settle    time.Duration `default:"2m" help:"How long what does not answer, or is pending, is waited for."`
	Linger    time.Duration `default:"40s" help:"How long after the last answer the topics are read: copies may come that late."`
	Journal   string        `placeholder:"FILE" help:"Keep the journal of all answers in this file."`
	CheckOnly bool          `help:"Post nothing: check the run of --journal again."`
	JSON      bool          `name:"json" help:"Print the report as JSON."`
	logging
}

// verdict is an error that ends the process with a code of its own.
type verdict struct {
	error
	code int
}

const (
	codeUnproved  = 2
	defaultCount  = 10_000
	progressEvery = 5 * time.Second
)

// Run drives a load, checks it, and prints the report. The first signal ends the load; the posted transactions are checked.
func (c *verifyCommand) Run(ctx context.Context, out output) error {
	report, err := c.run(ctx, out)
	if err != nil {
		return verdict{fmt.Errorf("verify: %w", err), codeUnproved}
	}
	write := report.WriteText
	if c.JSON {
		write = report.WriteJSON
	}
	if err := write(out.stdout); err != nil {
		return verdict{err, codeUnproved}
	}
	if code := report.ExitCode(); code != 0 {
		return verdict{fmt.Errorf("verify: %s", report.Verdict), code}
	}
	return nil
}

func (c *verifyCommand) run(ctx context.Context, out output) (*verify.Report, error) {
	if err := c.complete(ctx, out); err != nil {
		return nil, err
	}
	stack, err := c.stack()
	if err != nil {
		return nil, err
	}
	if c.LogFormat == "json" && !c.JSON {
		c.LogFormat = "text" // for people
	}
	options := verify.Options{Journal: c.Journal, Settle: c.Settle, Linger: c.Linger, Logger: c.logger(out.stderr)}
	run, loadErr, err := c.drive(ctx, stack, options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = run.Close() }()
	report, err := run.Check(context.WithoutCancel(ctx)) // a second signal ends the process
	if err != nil {
		return nil, err
	}
	if loadErr != nil {
		report.Stopped(loadErr)
	}
	if c.Journal != "" || report.Verdict != verify.Proved {
		run.KeepJournal()
		report.Journal = run.Journal()
	}
	return report, nil
}

// drive posts the load, or opens the journal of one. The first error is of the load; the posted transactions can still be checked.
func (c *verifyCommand) drive(ctx context.Context, stack verify.Stack, options verify.Options) (*verify.Run, error, error) { //nolint:revive // two errors
	if c.CheckOnly {
		if c.Journal == "" {
			return nil, nil, errors.New("--check-only needs --journal")
		}
		run, err := verify.Open(ctx, stack, c.Journal, options)
		return run, nil, err
	}
	load, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	run, err := verify.Start(ctx, stack, load, options)
	if err != nil {
		return nil, nil, err
	}
	options.Logger.InfoContext(ctx, "posting", "run", run.ID(), "ids", run.Prefix()+"…", "seed", load.Seed)
	done := make(chan struct{})
	go tellProgress(run, done, options.Logger)
	err = run.Load(ctx)
	close(done)
	if err != nil {
		options.Logger.ErrorContext(ctx, "the load has ended before its time", "transactions", run.Progress().Done, "of", load.Count, "error", err)
	}
	return run, err, nil
}

func tellProgress(run *verify.Run, done <-chan struct{}, log *slog.Logger) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	before := uint32(0)
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			p := run.Progress()
			log.Info("posting", "done", p.Done, "per_second", int(float64(p.Done-before)/progressEvery.Seconds()), "requests", p.Requests, "without_result", p.Failed) //nolint:sloglint // no context here
			before = p.Done
		}
	}
}

// complete fills in the missing settings from a txsvc dev on this machine.
func (c *verifyCommand) complete(ctx context.Context, out output) error {
	if url := baseURL(c.Listen); url != "" && len(c.URL) == 0 {
		c.URL = []string{url}
	}
	return ofDev{cluster: &c.cluster, databaseURL: &c.DatabaseURL, urls: &c.URL}.complete(ctx, out, c.Dir)
}

// stack is what to check.
func (c *verifyCommand) stack() (verify.Stack, error) {
	if err := c.cluster.validate(); err != nil {
		return verify.Stack{}, fmt.Errorf("%w; no txsvc dev runs in %s", err, c.Dir)
	}
	if len(c.URL) == 0 && !c.CheckOnly {
		c.URL = []string{"http://127.0.0.1:8080"}
	}
	header := make(http.Header)
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return verify.Stack{}, errors.New("--header: NAME:VALUE is needed")
		}
		header.Add(name, strings.TrimSpace(value))
	}
	return verify.Stack{
		URLs: c.URL, Header: header, DatabaseURL: c.DatabaseURL,
		Broker: verify.Broker{Nameservers: c.Nameservers, AccessKey: c.AccessKey, SecretKey: string(c.SecretKey)},
	}, nil
}

func (c *verifyCommand) load() (verify.Load, error) {
	load := verify.Load{
		Run: c.RunName, Seed: c.Seed, Keys: c.Keys, Distribution: c.Distribution, Count: c.Count, Duration: c.Duration, Rate: c.Rate,
		Concurrency: c.Concurrency, RequestTimeout: c.RequestTimeout, RetryFor: c.RetryFor, Shares: verify.DefaultShares(),
	}
	if load.Count == 0 && load.Duration == 0 {
		load.Count = defaultCount
	}
	if load.Seed == 0 {
		load.Seed = uint64(time.Now().UnixNano())
	}
	if c.Plain {
		load.Shares = verify.Shares{}
	}
	kinds, err := c.kinds()
	load.Kinds, load.AllKinds = kinds, len(c.Kind) == 0
	return load, err
}

// kinds are those that flags name.
func (c *verifyCommand) kinds() ([]verify.KindLoad, error) {
	byName := make(map[string]*verify.KindLoad)
	of := func(name string) *verify.KindLoad {
		if byName[name] == nil {
			byName[name] = &verify.KindLoad{Name: name, Weight: 1}
		}
		return byName[name]
	}
	for name, weight := range c.Kind {
		of(name).Weight = weight
	}
	for name, arg := range c.SelectorArg {
		of(name).SelectorArg = arg
	}
	for name, table := range c.Table {
		of(name).Table = table
	}
	for _, name := range c.Ordered {
		of(name).Ordered = true
	}
	for name, file := range c.Payload {
		text, err := os.ReadFile(file) //nolint:gosec // the operator names it
		if err != nil {
			return nil, fmt.Errorf("--payload: %w", err)
		}
		of(name).Payload = string(text)
	}
	for name, file := range c.RejectedPayload {
		text, err := os.ReadFile(file) //nolint:gosec // the operator names it
		if err != nil {
			return nil, fmt.Errorf("--rejected-payload: %w", err)
		}
		of(name).Rejected = string(text)
	}
	list := make([]verify.KindLoad, 0, len(byName))
	for _, k := range byName {
		list = append(list, *k)
	}
	return list, nil
}
