package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Stack is the stack to check.
type Stack struct {
	URLs        []string    // base URLs of the replicas
	Header      http.Header // added to each request
	DatabaseURL string      // empty: GET instead of rows
	Broker      Broker
}

// Options are the options of a run.
type Options struct {
	// Journal is the file to write; it must not exist. Empty: one in the directory for temporary files, which Close removes
	// unless KeepJournal was called.
	Journal string
	// Settle bounds each wait for something that does not answer or does not end; 2 min.
	Settle time.Duration
	// Linger is the time between the last answer and the reading of the topics. Copies can come late, because brokers
	// with default settings ask about half messages after 6 to 36 s.
	Linger time.Duration
	// Logger gets the progress. Nil: no log.
	Logger *slog.Logger
}

// Run is one run: its load and its check.
type Run struct {
	stack   Stack
	load    Load
	options Options
	log     *slog.Logger

	header  *header
	plan    *plan
	journal *journal
	path    string // of the journal
	temp    bool
	whole   bool // of a journal that was read

	targets *targets
	client  *client
	scraper *scraper
	driver  *driver
	latency []*histogram // of answers "committed", by kind
	topics  *topicReader
	db      *database
	checked bool
	cpu     time.Duration // used by the load
	last    time.Time     // of the last answer
	notes   []string
}

// startLimit bounds the wait for the stack at the start.
const startLimit = 10 * time.Second

// Start looks at the stack and prepares a load: it reads the service's kinds, and where the topics end. An error means that
// the stack, or the load, cannot be used.
func Start(ctx context.Context, stack Stack, load Load, options Options) (*Run, error) {
	now := time.Now()
	load.Kinds = slices.Clone(load.Kinds)
	load.setDefaults(now)
	if err := load.validate(); err != nil {
		return nil, err
	}
	return closedOnError(newRun(stack, load, options), func(r *Run) error { return r.start(ctx, now) })
}

// closedOnError calls open, and closes the run when that fails.
func closedOnError(r *Run, open func(*Run) error) (*Run, error) {
	if err := open(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Run) start(ctx context.Context, now time.Time) (err error) {
	load := &r.load
	if r.targets, err = newTargets(r.stack.URLs, load.Concurrency); err != nil {
		return err
	}
	r.client = newClient(nil, r.stack.Header, load.RequestTimeout, load.Concurrency)
	h := &header{
		Run: load.Run, Seed: load.Seed, Started: now, Keys: load.Keys, Distribution: load.Distribution, Shares: load.Shares,
		Count: load.Count, Rate: load.Rate, Concurrency: load.Concurrency,
	}
	if h.Kinds, h.LeftOut, err = r.askKinds(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(h.Kinds, func(k Kind) bool { return k.needsAnchors() }) {
		h.Anchors = anchorCount
	}
	if err := r.setHeader(h); err != nil {
		return err
	}
	if err := r.connect(ctx); err != nil {
		return err
	}
	if h.Starts, err = r.topics.starts(ctx); err != nil {
		return err
	}
	r.topics.begin(h.Starts)
	return r.begin(ctx)
}

// begin makes the journal and all that needs it.
func (r *Run) begin(ctx context.Context) (err error) {
	r.path = r.options.Journal
	if r.path == "" {
		r.path = filepath.Join(os.TempDir(), "txsvc-verify-"+r.header.Run+".journal")
	}
	if r.journal, err = createJournal(r.path, r.header); err != nil {
		return err
	}
	r.temp = r.options.Journal == ""
	r.scraper = &scraper{client: r.client, targets: r.targets, journal: r.journal, last: make(map[string]float64)}
	r.scraper.look(ctx)
	r.driver = &driver{plan: r.plan, load: &r.load, client: r.client, targets: r.targets, journal: r.journal, latency: r.latency}
	return nil
}

func newRun(stack Stack, load Load, options Options) *Run {
	setDefault(&options.Settle, 2*time.Minute)
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Run{stack: stack, load: load, options: options, log: options.Logger, whole: true}
}

func (r *Run) setHeader(h *header) (err error) {
	r.header = h
	for range h.Kinds {
		r.latency = append(r.latency, new(histogram))
	}
	if r.plan, err = newPlan(h); err == nil && r.client != nil {
		r.client.plan = r.plan
	}
	return err
}

// askKinds reads the kinds of the service, and chooses those of the load.
func (r *Run) askKinds(ctx context.Context) ([]Kind, []string, error) {
	var served struct {
		Items []servedKind `json:"items"`
	}
	err := retry(ctx, startLimit, func(ctx context.Context) error {
		text, err := r.client.fetch(ctx, r.targets.pick().url+"/v1/kinds")
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &served)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("asking the service for its kinds: %w", err)
	}
	return chooseKinds(served.Items, r.load.Kinds, r.load.AllKinds)
}

// connect opens database and broker.
func (r *Run) connect(ctx context.Context) (err error) {
	if r.stack.DatabaseURL != "" {
		if r.db, err = openDatabase(ctx, r.stack.DatabaseURL, r.plan.prefix, r.options.Settle); err != nil {
			return err
		}
		r.header.Lines = r.db.lines
		if err := r.lookAtTables(ctx); err != nil {
			return err
		}
	}
	var topics []string
	for _, k := range r.plan.kinds {
		topics = append(topics, k.Topic)
	}
	slices.Sort(topics)
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	r.topics, err = openTopics(starting, r.stack.Broker, slices.Compact(topics), r.options.Settle)
	return err
}

// lookAtTables drops the tables of shipped kinds that do not exist. A table that was named has to exist.
func (r *Run) lookAtTables(ctx context.Context) error {
	for i := range r.plan.kinds {
		k := &r.plan.kinds[i]
		if k.Table == "" {
			continue
		}
		there, err := r.db.hasTable(ctx, k.Table)
		switch {
		case err != nil:
			return fmt.Errorf("kind %s: %w", k.Name, err)
		case there:
		case k.Table == shipped[k.Name].Table:
			k.Table = ""
		default:
			return fmt.Errorf("kind %s: the database has no table %s with a column id of type text", k.Name, k.Table)
		}
	}
	return nil
}

// Open reads the journal of an earlier run, which can then be checked again. The stack's URLs may be empty; then things
// that only the service knows stay open.
func Open(ctx context.Context, stack Stack, journal string, options Options) (*Run, error) {
	r := newRun(stack, Load{Concurrency: 16, RequestTimeout: 15 * time.Second}, options)
	return closedOnError(r, func(r *Run) error { return r.open(ctx, journal) })
}

func (r *Run) open(ctx context.Context, journal string) (err error) {
	r.path, r.journal = journal, newJournal()
	if len(r.stack.URLs) > 0 {
		if r.targets, err = newTargets(r.stack.URLs, r.load.Concurrency); err != nil {
			return err
		}
		r.client = newClient(nil, r.stack.Header, r.load.RequestTimeout, r.load.Concurrency)
	}
	r.whole, err = readJournal(journal, r.setHeader, func(e *event) {
		r.journal.apply(e)
		r.last = e.at
		if a := &e.answer; e.kind == eventAnswer && a.Class == Committed && a.Purpose == Post {
			r.latency[r.plan.transaction(e.number).kind].add(a.Latency)
		}
	})
	if err != nil {
		return err
	}
	if err := r.connect(ctx); err != nil {
		return err
	}
	r.topics.begin(r.header.Starts)
	return nil
}

// ID returns the run's name, which is part of every id.
func (r *Run) ID() string { return r.header.Run }

// Prefix returns the beginning of all ids of the run.
func (r *Run) Prefix() string { return r.plan.prefix }

// Journal returns the journal's file.
func (r *Run) Journal() string { return r.path }

// SetURLs replaces the base URLs of the replicas, while a load runs.
func (r *Run) SetURLs(urls []string) error { return r.targets.set(urls) }

// Progress is the progress of a load.
type Progress struct {
	Done      uint32 // transactions
	Requests  uint64
	Committed uint64 // answers
	Failed    uint64 // requests that got no answer, or 5xx
}

// Progress returns the present progress. It may be called at any time.
func (r *Run) Progress() Progress {
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	p := Progress{}
	if r.driver != nil {
		p.Done = r.driver.ended.Load()
	}
	for _, purpose := range purposes {
		p.Requests += r.journal.tally.Requests[purpose]
	}
	answers := &r.journal.tally.Answers[Post]
	p.Committed = answers[Committed]
	for _, c := range []Class{BrokerUnavailable, DatabaseUnavailable, Overloaded, Internal, OtherStatus, NotSent, Broken, TimedOut} {
		p.Failed += answers[c]
	}
	return p
}

// flushEvery bounds the part of a journal that is lost when this process dies.
const flushEvery = time.Second

// Load posts until the load's count or duration is reached, or ctx ends; then it finishes the open transactions. An
// error means that the service refuses the requests as wrong, or that the journal could not be written. The posted
// transactions can still be checked.
func (r *Run) Load(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	scraped := make(chan struct{})
	go func() { defer close(scraped); r.scraper.run(background) }()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for pause.For(background, flushEvery) {
			_ = r.journal.flush() // the error stays
		}
	}()
	begin, cpu := time.Now(), cpuTime()
	err := r.driver.run(ctx)
	r.cpu = cpuTime() - cpu
	r.journal.end(time.Since(begin))
	r.last = time.Now()
	stop()
	<-scraped
	<-flushed
	return errors.Join(err, r.journal.flush())
}

// KeepJournal makes Close leave the journal's file.
func (r *Run) KeepJournal() { r.temp = false }

// Close ends all connections.
func (r *Run) Close() (err error) {
	if r.journal != nil {
		err = r.journal.close()
	}
	if r.topics != nil {
		r.topics.close()
	}
	if r.db != nil {
		r.db.close()
	}
	if r.client != nil {
		r.client.close()
	}
	if r.temp && r.path != "" {
		err = errors.Join(err, os.Remove(r.path))
	}
	return err
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return out.Flush()
}
