package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// examination is one check of a run, from waiting to the report.
type examination struct {
	run     *Run
	checker *checker
	report  *Report
	source  rowSource
}

// Check waits until nothing is in flight any more, reads rows and messages, and compares. It takes as long as the stack
// needs, but each step at most Settle without progress; the report names everything that was out of reach. Only the end
// of ctx is an error. A Run is checked once; Open reads its journal for another check.
func (r *Run) Check(ctx context.Context) (*Report, error) {
	if r.checked {
		return nil, errChecked
	}
	r.checked = true
	e := &examination{
		run: r, checker: newChecker(r.plan, r.journal),
		report: &Report{Run: r.header.Run, Seed: r.header.Seed, Started: r.header.Started.UTC(), Rows: "database", Unproven: []string{}, Notes: []string{}},
	}
	if e.source = r.db; r.db == nil {
		e.source, e.report.Rows = &asker{r}, "get"
	}
	for _, step := range []func(context.Context){e.settle, e.linger, e.settle, e.ask, e.readRows, e.readTopics, e.lookAgain, e.readTables} {
		if step(ctx); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	e.checker.judge()
	e.conclude(ctx)
	return e.report, nil
}

var errChecked = errors.New("this run has been checked: open its journal to check it again")

func (e *examination) unproven(format string, args ...any) {
	e.report.Unproven = append(e.report.Unproven, fmt.Sprintf(format, args...))
}

func (e *examination) note(format string, args ...any) {
	e.report.Notes = append(e.report.Notes, fmt.Sprintf(format, args...))
}

// pollEvery is the time between two looks whether everything has settled.
const pollEvery = 250 * time.Millisecond

// settle waits until no row is pending and no replica that answers has anything in flight.
func (e *examination) settle(ctx context.Context) {
	r := e.run
	begin := time.Now()
	for deadline := begin.Add(r.options.Settle); ; {
		pending, err := e.source.pending(ctx)
		busy := e.busy(ctx)
		if err == nil && pending == 0 && !busy {
			r.log.InfoContext(ctx, "nothing is pending", "after", time.Since(begin).Round(time.Millisecond))
			return
		}
		if time.Now().After(deadline) || !pause.For(ctx, pollEvery) {
			// The rows show what is still pending.
			r.log.WarnContext(ctx, "still not settled, going on", "pending", pending, "busy", busy, "error", err)
			return
		}
	}
}

// busy reports whether a replica that answers has something in flight. It ignores the others, because they may be gone
// for good.
func (e *examination) busy(ctx context.Context) bool {
	if e.run.scraper == nil {
		return false
	}
	e.run.scraper.look(ctx)
	idle, _ := e.run.scraper.idle()
	return !idle
}

// linger waits, because copies may come late.
func (e *examination) linger(ctx context.Context) {
	r := e.run
	wait := time.Until(r.last.Add(r.options.Linger))
	if wait <= 0 {
		return
	}
	r.log.InfoContext(ctx, "waiting for copies that may come late", "for", wait.Round(time.Second))
	pause.For(ctx, wait)
}

// sample is the number of decided transactions that are asked for. Undecided ones are all asked for.
const sample = 200

// ask sends a last GET for every transaction without a final answer, and for some others. The answers count like all
// others.
func (e *examination) ask(ctx context.Context) {
	r := e.run
	if r.targets == nil {
		return
	}
	numbers := e.toAsk()
	r.log.InfoContext(ctx, "asking for transactions", "count", len(numbers))
	ctx, cancel := context.WithTimeout(ctx, r.options.Settle)
	defer cancel()
	var group sync.WaitGroup
	next := make(chan uint32)
	for range 16 {
		group.Go(func() {
			for n := range next {
				e.askOne(ctx, n)
			}
		})
	}
	for _, n := range numbers {
		if ctx.Err() != nil {
			r.log.WarnContext(ctx, "not all transactions could be asked for in time")
			break
		}
		next <- n
	}
	close(next)
	group.Wait()
}

func (e *examination) toAsk() (numbers []uint32) {
	every := max(e.run.journal.facts.count/sample, 1)
	e.run.journal.facts.each(func(n uint32, f *fact) {
		if open := !f.flags.any(saidCommitted | saidRejected); f.sent != 0 && (open || n%every == 0) {
			numbers = append(numbers, n)
		}
	})
	return numbers
}

// askOne asks until the outcome is not unknown any more, or ctx ends.
func (e *examination) askOne(ctx context.Context, n uint32) {
	r := e.run
	d := &driver{plan: r.plan, load: &r.load, client: r.client, targets: r.targets, journal: r.journal}
	t := r.plan.transaction(n)
	var last Class
	_ = retry(ctx, r.options.Settle, func(ctx context.Context) error {
		switch last = d.ask(ctx, t).Class; last {
		case Committed, Rejected, NotFound, Abandoned, Malformed:
			return nil
		default:
			return errors.New(last.String())
		}
	})
	switch last {
	case Unknown:
		r.journal.observe(n, askedUnknown)
	case NotFound, Abandoned:
		r.journal.observe(n, askedGone)
	default:
	}
}

// readRows takes all rows of the run.
func (e *examination) readRows(ctx context.Context) {
	begin, n := time.Now(), 0
	err := e.source.scan(ctx, func(row *Row) { n++; e.checker.row(row) })
	if err != nil {
		e.checker.rowsOnly = true
		e.unproven("%v", err)
	}
	e.run.log.InfoContext(ctx, "rows read", "rows", n, "after", time.Since(begin).Round(time.Millisecond))
}

// readTopics takes all messages up to the topics' present ends.
func (e *examination) readTopics(ctx context.Context) {
	begin, n := time.Now(), 0
	err := e.run.topics.read(ctx, func(m *Message) { n++; e.checker.message(m) })
	e.checker.maybe = err != nil
	if n > 0 {
		e.run.log.InfoContext(ctx, "messages read", "messages", n, "after", time.Since(begin).Round(time.Millisecond))
	}
	if err != nil {
		e.run.log.WarnContext(ctx, "not all queues could be read", "error", err)
	}
}

const (
	// secondLook bounds the second search for rows and messages that seem to be missing. Brokers show a message some
	// milliseconds after they have confirmed it, and a row may have come after the rows were read.
	secondLook = 10 * time.Second
	findBatch  = 1000
)

func (e *examination) lookAgain(ctx context.Context) {
	for deadline := time.Now().Add(min(secondLook, e.run.options.Settle)); ; {
		suspects := e.checker.suspects()
		waited := time.Now().After(deadline) || e.checker.maybe || e.checker.rowsOnly
		if len(suspects) == 0 || waited || !pause.For(ctx, pollEvery) {
			break
		}
		for first := 0; first < len(suspects); first += findBatch {
			e.findRows(ctx, suspects[first:min(first+findBatch, len(suspects))])
		}
		e.readTopics(ctx)
	}
	if e.checker.maybe {
		e.unproven("%v", e.run.topics.problems())
	}
}

// readTables reads the kinds' tables. It reads differences once more, because rows may have come meanwhile.
func (e *examination) readTables(ctx context.Context) {
	if e.run.db == nil {
		return
	}
	tables := make(map[string]bool)
	for i := range e.checker.kinds {
		table := e.run.plan.kinds[i].Table
		if table == "" {
			continue
		}
		if !tables[table] && !e.takeChanges(ctx, table, nil) {
			continue
		}
		tables[table], e.checker.kinds[i].table = true, table
	}
	again := e.checker.halfDone()
	for first := 0; first < len(again); first += findBatch {
		numbers := again[first:min(first+findBatch, len(again))]
		e.findRows(ctx, numbers)
		for table := range tables {
			e.takeChanges(ctx, table, e.ids(numbers))
		}
	}
}

func (e *examination) takeChanges(ctx context.Context, table string, ids []string) bool {
	err := e.run.db.changes(ctx, table, ids, e.checker.change)
	if err != nil {
		e.unproven("%v", err)
	}
	return err == nil
}

func (e *examination) ids(numbers []uint32) []string {
	ids := make([]string, len(numbers))
	for i, n := range numbers {
		ids[i] = e.run.plan.id(n)
	}
	return ids
}

func (e *examination) findRows(ctx context.Context, numbers []uint32) {
	if err := e.source.find(ctx, e.ids(numbers), e.checker.row); err != nil {
		e.checker.rowsOnly = true
		e.unproven("%v", err)
	}
}

// conclude makes the report.
func (e *examination) conclude(ctx context.Context) {
	r, c, report := e.run, e.checker, e.report
	report.fill(c)
	report.Checked = time.Now().UTC()
	e.incomplete()
	e.remarks()
	e.speed()
	if r.scraper != nil {
		r.scraper.look(ctx)
		if _, known := r.scraper.idle(); known {
			report.Suspected = &r.journal.suspect
		}
	}
	report.decide(c.found.total())
	if err := e.histories(); err != nil {
		e.note("the journal could not be read for the findings' histories: %v", err)
	}
}

// incomplete lists everything that could not be judged.
func (e *examination) incomplete() {
	c := e.checker
	if n := c.unproved.lost; n > 0 {
		e.unproven("%d committed transactions were not seen, and not all queues could be read", n)
	}
	if n := c.unproved.ghosts; n > 0 {
		e.unproven("%d visible transactions have no row, and not all rows could be read", n)
	}
	if n := c.unproved.answers; n > 0 {
		e.unproven("%d answers could not be held against a row or a message", n)
	}
	var pending, unasked uint64
	c.journal.facts.each(func(_ uint32, f *fact) {
		if f.flags.has(rowPending) {
			pending++
		}
		if f.flags.has(saidUnknown) && !f.flags.any(rowSeen|saidCommitted|saidRejected|askedUnknown|askedGone) {
			unasked++
		}
	})
	if pending > 0 {
		e.unproven("%d rows are still pending after %s: their messages may come later", pending, e.run.options.Settle)
	}
	if unasked > 0 {
		e.unproven("%d transactions were answered \"unknown\", have no row, and the service was not asked, or did not say what became of them", unasked)
	}
	for i, k := range c.kinds {
		name := c.plan.kinds[i].Name
		if k.ordered && k.splitKeys > 0 {
			e.unproven("kind %s is ordered, and %d of its keys are visible in more than one queue: their order cannot be seen", name, k.splitKeys)
		}
		if k.ordered && k.noLine > 0 && e.report.Rows == "database" && e.run.db.lines {
			e.unproven("kind %s is ordered, and %d of its rows have no place in a line", name, k.noLine)
		}
	}
}

// remarks adds notes that are worth knowing and no violations.
func (e *examination) remarks() {
	r := e.run
	if e.report.Rows == "get" {
		e.note("rows were asked for with GET, not read from the database: slower, and the service's own word")
	}
	if !r.whole || !r.journal.ended {
		e.note("the journal ends before the load did: answers after that are not known")
	}
	for _, name := range r.header.LeftOut {
		e.note("kind %s was left out: no template of its payload is given", name)
	}
	ordered := false
	for _, k := range e.checker.kinds {
		ordered = ordered || k.ordered
	}
	if ordered && (r.db == nil || !r.db.lines) {
		e.note("ordered kinds were held to what clients saw only: the rows' places in line (column line) are not there")
	}
	e.report.Notes = append(e.report.Notes, r.notes...)
}

func (e *examination) speed() {
	r, report := e.run, e.report
	seconds := r.journal.elapsed.Seconds()
	report.Load.Seconds, report.Load.JournalWhole = round(seconds, 3), r.whole && r.journal.ended
	if seconds > 0 {
		report.Load.PerSecond = round(float64(report.Posted)/seconds, 1)
		report.Load.CPUCores = round(r.cpu.Seconds()/seconds, 3)
	}
	for i, h := range r.latency {
		q := h.quantiles(0.5, 0.95, 0.99, 1)
		k := &report.Kinds[i]
		k.P50, k.P95, k.P99, k.Max = milliseconds(q[0]), milliseconds(q[1]), milliseconds(q[2]), milliseconds(q[3])
	}
}

func milliseconds(d time.Duration) float64 { return round(d.Seconds()*1000, 2) }

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
