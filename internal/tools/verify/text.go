package verify

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// meanings describes each class of violations for people.
var meanings = map[string]string{
	Lost:               "committed in the database, and no consumer will see the message",
	Doubled:            "a consumer sees the message more than once",
	Ghost:              "a consumer sees a message whose transaction is not committed",
	HalfDone:           "the transaction's row and its business change (the table of its kind) do not agree",
	WrongQueue:         "the message is in another queue than the answer and the row say",
	WrongContent:       "the message (or the row) is not what was sent",
	Inversion:          "messages of one shard key are visible in another order than they were committed in",
	Unsent:             "something with an id of this run exists that this run has not sent",
	FalseCommitted:     "an answer said committed, and the row is not",
	FalseDiffers:       "an answer and the row say different things",
	FalseRejected:      "an answer said rejected, and the row is committed",
	FalseNotKept:       "an answer said rejected, and no row keeps that",
	FalseNothing:       "every request was told that it has changed nothing, and the row is committed",
	FalseDelivered:     "an answer said delivered, and no message is visible",
	FalseContradiction: "two answers about one id differ",
	FalseTwice:         "two requests with one id were both told that they committed",
	FalseGone:          "GET did not find what had been answered to be committed",
	FalseOther:         "another request with a used id was accepted",
	FalseMismatch:      "the only request of an id was told that there was another",
	FalseUnknown:       "the outcome was answered to be unknown, and still is",
	FalseNotRejected:   "a request that breaks a constraint was committed",
	FalseMalformed:     "an answer was not what the contract says",
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nrun %s, seed %d: %s transactions in %s s, %s/s; rows read from the %s\n\n%s\n\n",
		r.Run, r.Seed, group(r.Posted), fmt.Sprint(r.Load.Seconds), group(uint64(r.Load.PerSecond)), where(r.Rows), r.headline())
	if r.Load.Stopped != "" {
		fmt.Fprintf(&b, "The load ended after %s transactions, because the service refuses what it is to be sent: %s\n\n", group(r.Posted), r.Load.Stopped)
	}
	r.writeCounts(&b)
	r.writeFindings(&b)
	writeList(&b, "could not be proved", r.Unproven)
	r.writeKinds(&b)
	r.writeAnswers(&b)
	writeList(&b, "notes", r.Notes)
	if r.Journal != "" {
		fmt.Fprintf(&b, "\njournal: %s (txsvc verify --check-only --journal %s checks it again)\n", r.Journal, r.Journal)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func where(rows string) string {
	if rows == "get" {
		return "service (GET)"
	}
	return rows
}

func (r *Report) headline() string {
	switch r.Verdict {
	case Proved:
		return "PROVED: nothing is lost, doubled or misplaced, and every answer was true."
	case Violated:
		return "VIOLATED: " + strings.Join(r.violated(), ", ") + "."
	default:
		return "NOT PROVED: nothing wrong was found, but not everything could be checked; see below."
	}
}

func (r *Report) violated() (list []string) {
	for _, c := range r.counts() {
		if c.bad && c.n > 0 {
			list = append(list, group(c.n)+" "+c.name)
		}
	}
	return list
}

type count struct {
	name string
	n    uint64
	bad  bool
	more string
}

func (r *Report) counts() []count {
	doubled := "extra copies; the service's metrics were not read"
	if r.Suspected != nil {
		doubled = fmt.Sprintf("extra copies; the service itself suspects %s", group(*r.Suspected))
	}
	return []count{
		{"posted", r.Posted, false, fmt.Sprintf("%s rejected, %s never committed", group(r.Rejected), group(r.Undecided))},
		{"committed", r.Committed, false, "rows"},
		{"visible", r.Visible, false, "distinct ids in the topics"},
		{"lost", r.Lost, true, "committed, not visible"},
		{"doubled", r.Doubled, true, doubled},
		{"ghosts", r.Ghosts, true, "visible, not committed"},
		{"half done", r.HalfDone, true, r.tablesText()},
		{"wrong queue", r.WrongQueue, true, ""},
		{"wrong content", r.WrongContent, true, ""},
		{"inversions", r.Inversions, true, r.orderText()},
		{"unsent", r.Unsent, true, "ids of this run that it did not send"},
		{"false answers", r.FalseAnswers, true, ""},
	}
}

// tablesText lists the kinds whose business change was compared.
func (r *Report) tablesText() string {
	var tables []string
	for _, k := range r.Kinds {
		if k.Table != "" {
			tables = append(tables, k.Table)
		}
	}
	if len(tables) == 0 {
		return "no business table was looked at"
	}
	return "rows without their change in " + strings.Join(tables, ", ") + ", or the other way round"
}

// orderText lists the kinds whose order was checked, and the inversions of the others.
func (r *Report) orderText() string {
	var ordered []string
	others := uint64(0)
	for _, k := range r.Kinds {
		if k.Ordered {
			ordered = append(ordered, k.Name)
		} else {
			others += k.Inversions
		}
	}
	if len(ordered) == 0 {
		return fmt.Sprintf("no kind promises an order (%s seen, for information)", group(others))
	}
	return "of " + strings.Join(ordered, ", ") + fmt.Sprintf(" (%s of kinds without that promise)", group(others))
}

func (r *Report) writeCounts(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range r.counts() {
		mark := " "
		if c.bad && c.n > 0 {
			mark = "!"
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\n", mark, c.name, padded(group(c.n), 11), c.more)
	}
	_ = w.Flush() // a Builder does not fail
}

func padded(s string, width int) string { return strings.Repeat(" ", max(width-len(s), 0)) + s }

// shownHistories bounds the histories of each class. The JSON report has more.
const shownHistories = 3

func (r *Report) writeFindings(b *strings.Builder) {
	shown := make(map[string]int)
	for _, f := range r.Findings {
		if shown[f.Class] == 0 {
			fmt.Fprintf(b, "\n%s: %s\n", f.Class, meanings[f.Class])
		}
		if shown[f.Class]++; shown[f.Class] > shownHistories {
			fmt.Fprintf(b, "  %s  %s\n", f.ID, f.Detail)
			continue
		}
		fmt.Fprintf(b, "  %s  %s\n", f.ID, f.Detail)
		for _, line := range f.History {
			fmt.Fprintf(b, "      %s\n", line)
		}
	}
}

func writeList(b *strings.Builder, title string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, text := range list {
		fmt.Fprintf(b, "  - %s\n", strings.ReplaceAll(text, "\n", "\n    "))
	}
}

func (r *Report) writeKinds(b *strings.Builder) {
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kind\tposted\tcommitted\trejected\tvisible\tviolations\tp50 ms\tp95 ms\tp99 ms\tmax ms\t")
	for _, k := range r.Kinds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t\n",
			k.Name, group(k.Posted), group(k.Committed), group(k.Rejected), group(k.Visible), group(k.Violations), k.P50, k.P95, k.P99, k.Max)
	}
	_ = w.Flush()
}

func (r *Report) writeAnswers(b *strings.Builder) {
	titles := []string{"answers", "  to other requests with a used id", "  to GET"}
	for i, purpose := range purposeKeys {
		var list []string
		for class, n := range r.Answers[purpose] {
			list = append(list, class+" "+group(n))
		}
		if len(list) == 0 {
			continue
		}
		slices.Sort(list)
		fmt.Fprintf(b, "\n%s: %s", titles[i], strings.Join(list, ", "))
	}
	b.WriteByte('\n')
	if r.Load.CPUCores > 0 {
		fmt.Fprintf(b, "the load itself used %.2f cores\n", r.Load.CPUCores)
	}
}

// group writes a number with commas between thousands.
func group(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
