package faults

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// Counts has the counts of a round, or of all rounds.
type Counts struct {
	Posted       int `json:"posted"` // transactions; each is tried until its answer is final
	Committed    int `json:"committed"`
	Visible      int `json:"visible"` // messages
	Unknown      int `json:"unknown"` // transactions that were answered "unknown" at some time
	Lost         int `json:"lost"`
	Doubled      int `json:"doubled"`
	Ghost        int `json:"ghost"`
	WrongQueue   int `json:"wrong_queue"`
	Inversions   int `json:"inversions"`
	FalseAnswers int `json:"false_answers"`
	Other        int `json:"other"` // findings of other kinds
}

func (c *Counts) add(o Counts) {
	c.Posted += o.Posted
	c.Committed += o.Committed
	c.Visible += o.Visible
	c.Unknown += o.Unknown
	c.Lost += o.Lost
	c.Doubled += o.Doubled
	c.Ghost += o.Ghost
	c.WrongQueue += o.WrongQueue
	c.Inversions += o.Inversions
	c.FalseAnswers += o.FalseAnswers
	c.Other += o.Other
}

// String is for logs.
func (c Counts) String() string {
	return fmt.Sprintf("posted %d committed %d visible %d unknown %d lost %d doubled %d ghost %d wrong_queue %d inversions %d false_answers %d other %d",
		c.Posted, c.Committed, c.Visible, c.Unknown, c.Lost, c.Doubled, c.Ghost, c.WrongQueue, c.Inversions, c.FalseAnswers, c.Other)
}

// Happened is one fault that took place.
type Happened struct {
	Round  int           `json:"round"`
	Fault  string        `json:"fault"`
	Detail string        `json:"detail"`
	Proof  string        `json:"proof,omitempty"` // an observation which shows that the fault took place
	Began  time.Time     `json:"began"`
	Took   time.Duration `json:"took_ns"`
	Posted int           `json:"posted"` // transactions begun meanwhile
}

// Row is one fault's line of the table. Faults overlap, and a check is about a whole round. So each count is that of
// all rounds with the fault, except Posted, which counts transactions during the fault.
type Row struct {
	Fault  string        `json:"fault"`
	Count  int           `json:"count"`
	Proved int           `json:"proved"`
	Took   time.Duration `json:"took_ns"`
	Posted int           `json:"posted"`
	Rounds Counts        `json:"of_its_rounds"`
	rounds map[int]bool
}

// Result is the result of a run.
type Result struct {
	Seed     uint64        `json:"seed"`
	Command  string        `json:"command"`
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took_ns"`
	Dir      string        `json:"dir"`
	Rounds   int           `json:"rounds"`
	LeftOut  []string      `json:"left_out"` // faults that are not possible on this machine
	Rows     []*Row        `json:"faults"`
	Total    Counts        `json:"total"`
	Sweep    Sweep         `json:"sweep"`
	Findings []string      `json:"findings"`
	Happened []Happened    `json:"happened"`

	mu sync.Mutex
}

func (r *Result) faults(names []string) {
	for _, name := range names {
		r.Rows = append(r.Rows, &Row{Fault: name, rounds: make(map[int]bool)})
	}
}

func (r *Result) row(name string) *Row {
	return r.Rows[slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Fault == name })]
}

func (r *Result) happened(h Happened) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Happened = append(r.Happened, h)
	row := r.row(h.Fault)
	row.Count++
	if h.Proof != "" {
		row.Proved++
	}
	row.Took += h.Took
	row.Posted += h.Posted
}

func (r *Result) add(number int, round []planned, counts Counts, findings []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rounds++
	r.Total.add(counts)
	for _, e := range round {
		if row := r.row(e.fault); !row.rounds[number] {
			row.rounds[number] = true
			row.Rounds.add(counts)
		}
	}
	for _, finding := range findings {
		r.Findings = append(r.Findings, fmt.Sprintf("round %d: %s", number, finding))
	}
}

// Print writes the table.
func (r *Result) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fault\tcount\tproved\tseconds\tposted during\tcommitted\tvisible\tlost\tdoubled\tghost\twrong queue\tinversions\tfalse answers\tother\t")
	line := func(name string, count, proved int, took time.Duration, posted int, c Counts) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, count, proved, took.Seconds(), posted,
			c.Committed, c.Visible, c.Lost, c.Doubled, c.Ghost, c.WrongQueue, c.Inversions, c.FalseAnswers, c.Other)
	}
	all, proved := 0, 0
	for _, row := range r.Rows {
		line(row.Fault, row.Count, row.Proved, row.Took, row.Posted, row.Rounds)
		all, proved = all+row.Count, proved+row.Proved
	}
	line("all", all, proved, r.Took, r.Total.Posted, r.Total)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nseed %d, %d rounds, %s, %.0f transactions/s; answered unknown meanwhile: %d\n", r.Seed, r.Rounds, r.Took.Round(time.Second),
		float64(r.Total.Posted)/max(r.Took.Seconds(), 1), r.Total.Unknown)
	fmt.Fprintf(w, "read once more at the end: %s\n", r.Sweep)
	for _, reason := range r.LeftOut {
		fmt.Fprintf(w, "left out: %s\n", reason)
	}
	for i, finding := range r.Findings {
		if i == 20 {
			fmt.Fprintf(w, "and %d findings more\n", len(r.Findings)-i)
			break
		}
		fmt.Fprintf(w, "FOUND %s\n", finding)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintf(w, "logs, journals and the broken world: %s\nagain: %s (with -only N: round N alone)\n", r.Dir, r.Command)
	}
	return nil
}
