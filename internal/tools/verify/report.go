package verify

import (
	"fmt"
	"time"
)

// Verdicts of a report.
const (
	Proved   = "proved"   // everything was compared, and everything was right
	Violated = "violated" // something was wrong
	Unproved = "unproved" // nothing wrong was found, but not everything could be compared
)

// Report is the outcome of a check. The JSON names are stable; counts of transactions unless said otherwise.
type Report struct {
	Run     string    `json:"run"`
	Seed    uint64    `json:"seed"`
	Started time.Time `json:"started"`
	Checked time.Time `json:"checked"`
	Verdict string    `json:"verdict"`

	Posted    uint64 `json:"posted"`
	Committed uint64 `json:"committed"`
	Rejected  uint64 `json:"rejected"`
	Undecided uint64 `json:"undecided"` // posted, neither committed nor rejected in the end: never committed
	Visible   uint64 `json:"visible"`   // distinct ids

	Lost         uint64 `json:"lost"`
	Doubled      uint64 `json:"doubled"` // extra copies
	Ghosts       uint64 `json:"ghosts"`
	HalfDone     uint64 `json:"half_done"` // row and business change do not agree
	WrongQueue   uint64 `json:"wrong_queue"`
	WrongContent uint64 `json:"wrong_content"`
	Inversions   uint64 `json:"inversions"` // of ordered kinds
	Unsent       uint64 `json:"unsent"`
	FalseAnswers uint64 `json:"false_answers"`
	// FalseBy has the false answers by their class; see docs/verify.md.
	FalseBy map[string]uint64 `json:"false_answers_by_class"`
	// Suspected is the number of copies that the service itself has counted during the run
	// (txsvc_duplicates_suspected_total); nil if its metrics could not be read.
	Suspected *uint64 `json:"suspected_duplicates"`

	Findings []Finding `json:"findings"`
	// Unproven lists everything that could not be compared, with the reasons.
	Unproven []string `json:"unproven"`
	Notes    []string `json:"notes"`

	Kinds   []KindReport                 `json:"kinds"`
	Answers map[string]map[string]uint64 `json:"answers"` // by purpose (post, other, get) and class; requests, not transactions
	Load    LoadReport                   `json:"load"`
	Journal string                       `json:"journal"` // file; empty when it was not kept
	Rows    string                       `json:"rows"`    // "database" or "get": where the rows were read
}

// KindReport has the counts of one kind. Inversions of kinds that are not ordered are no violations.
type KindReport struct {
	Name       string  `json:"name"`
	Topic      string  `json:"topic"`
	Table      string  `json:"table"` // that was compared; empty: none
	Ordered    bool    `json:"ordered"`
	Posted     uint64  `json:"posted"`
	Committed  uint64  `json:"committed"`
	Rejected   uint64  `json:"rejected"`
	Visible    uint64  `json:"visible"`
	Inversions uint64  `json:"inversions"`
	Violations uint64  `json:"violations"` // of all classes
	P50        float64 `json:"p50_ms"`     // of requests that were answered 201
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
}

// LoadReport has the load's rates.
type LoadReport struct {
	Seconds      float64 `json:"seconds"`
	Requests     uint64  `json:"requests"`
	PerSecond    float64 `json:"transactions_per_second"`
	CPUCores     float64 `json:"cpu_cores"` // used by the load itself; 0 when checked later
	Interrupted  bool    `json:"interrupted"`
	Stopped      string  `json:"stopped"` // why the load ended early; empty if it did not
	JournalWhole bool    `json:"journal_whole"`
}

// ExitCode is 0 for proved, 1 for violated, 2 for unproved.
func (r *Report) ExitCode() int {
	switch r.Verdict {
	case Proved:
		return 0
	case Violated:
		return 1
	default:
		return 2
	}
}

var purposeKeys = []string{"post", "other", "get"}

// fill copies the checker's findings and counts.
func (r *Report) fill(c *checker) {
	counts := c.found.counts
	r.Lost, r.Doubled, r.Ghosts = counts[Lost], counts[Doubled], counts[Ghost]
	r.HalfDone = counts[HalfDone]
	r.WrongQueue, r.WrongContent, r.Inversions, r.Unsent = counts[WrongQueue], counts[WrongContent], counts[Inversion], counts[Unsent]
	r.FalseAnswers, r.FalseBy = c.found.falseAnswers(), make(map[string]uint64, len(falseClasses))
	for _, class := range falseClasses {
		r.FalseBy[class] = counts[class]
	}
	r.Findings = c.found.list()
	for i, k := range c.kinds {
		p := &c.plan.kinds[i]
		r.Kinds = append(r.Kinds, KindReport{
			Name: p.Name, Topic: p.Topic, Table: k.table, Ordered: k.ordered, Posted: k.posted, Committed: k.committed, Rejected: k.rejected,
			Visible: k.visible, Inversions: k.inversions, Violations: k.violations,
		})
		r.Posted, r.Committed, r.Rejected, r.Visible = r.Posted+k.posted, r.Committed+k.committed, r.Rejected+k.rejected, r.Visible+k.visible
	}
	c.journal.facts.each(func(_ uint32, f *fact) {
		if f.sent != 0 && !f.flags.any(rowCommitted|rowRejected) {
			r.Undecided++
		}
	})
	r.answers(&c.journal.tally)
}

func (r *Report) answers(t *tally) {
	r.Answers = make(map[string]map[string]uint64)
	for _, p := range purposes {
		r.Load.Requests += t.Requests[p]
		byClass := make(map[string]uint64)
		for class, n := range t.Answers[p] {
			if n > 0 {
				byClass[Class(class).String()] = n
			}
		}
		r.Answers[purposeKeys[p]] = byClass
	}
	if t.Replayed > 0 {
		r.Answers[purposeKeys[Post]]["replayed"] = t.Replayed // part of committed
	}
}

// Incomplete adds a reason why something could not be checked.
func (r *Report) Incomplete(err error) {
	r.Unproven = append(r.Unproven, err.Error())
	if r.Verdict == Proved {
		r.Verdict = Unproved
	}
}

// Stopped notes why the load ended early.
func (r *Report) Stopped(err error) {
	r.Load.Stopped = err.Error()
	r.Incomplete(fmt.Errorf("the load ended after %s transactions: %w", group(r.Posted), err))
}

// decide sets the verdict.
func (r *Report) decide(violations uint64) {
	switch {
	case violations > 0:
		r.Verdict = Violated
	case len(r.Unproven) > 0:
		r.Verdict = Unproved
	default:
		r.Verdict = Proved
	}
}
