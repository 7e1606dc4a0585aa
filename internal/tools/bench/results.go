package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/txsvc/txsvc/internal/tools/verify"
)

// results are what a run found out, and the JSON file.
type results struct {
	Began      time.Time `json:"began"`
	Took       float64   `json:"took_s"`
	Options    options   `json:"options"`
	Machine    machine   `json:"machine"`
	Contenders []outcome `json:"contenders"`
}

// outcome is what a run found out about one contender: medians of its turns, and the turns themselves.
type outcome struct {
	Name   string           `json:"name"`
	Does   string           `json:"does"`
	Keys   int              `json:"keys"`
	Closed summary          `json:"closed"`
	Open   []summary        `json:"open,omitempty"`
	Found  *verify.Findings `json:"verified,omitempty"`
	Turns  []turn           `json:"turns"`

	ours bool // the service, not a program beside it
}

// summary has the medians of turns of one sort.
type summary struct {
	turn
	Min     float64    `json:"min_per_second"`
	Max     float64    `json:"max_per_second"`
	OfPlain *quotients `json:"of_plain,omitempty"` // nil: the plain handler did not take part
}

// quotients hold a contender to the plain handler: medians over the rounds of the quotients within each.
type quotients struct {
	PerSecond float64 `json:"per_second"`
	Service   float64 `json:"service_us"`
	Postgres  float64 `json:"postgres_us"`
	WAL       float64 `json:"wal_bytes"`
	P99       float64 `json:"p99_ms"`
}

// ofPlain needs as many turns of plain, in the order of the rounds.
func ofPlain(turns, plain []turn) *quotients {
	if len(plain) != len(turns) {
		return nil
	}
	of := func(value func(turn) float64) float64 {
		list := make([]float64, len(turns))
		for i := range turns {
			if divisor := value(plain[i]); divisor > 0 { // short turns may use less CPU time than can be seen
				list[i] = value(turns[i]) / divisor
			}
		}
		return middle(list)
	}
	return &quotients{
		PerSecond: of(turn.perSecond), Service: of(func(t turn) float64 { return t.Service }), Postgres: of(func(t turn) float64 { return t.Postgres }),
		WAL: of(func(t turn) float64 { return t.WAL }), P99: of(func(t turn) float64 { return t.P99 }),
	}
}

// at returns the turns at a part of the contender's capacity; at 0 those of the closed loop.
func (c *contender) at(part float64) (list []turn) {
	for _, t := range c.turns {
		if t.Part == part {
			list = append(list, t)
		}
	}
	return list
}

func (c *contender) closed() []turn { return c.at(0) }

// parts returns the parts of the capacity at which the contender was measured, without 0.
func (c *contender) parts() (list []float64) {
	for _, t := range c.turns {
		if t.Part != 0 && !slices.Contains(list, t.Part) {
			list = append(list, t.Part)
		}
	}
	return list
}

func (r *results) add(list []*contender) {
	plain := new(contender)
	if i := slices.IndexFunc(list, func(c *contender) bool { return c.name == "plain" }); i >= 0 {
		plain = list[i]
	}
	for _, c := range list {
		o := outcome{Name: c.name, Does: c.does, Keys: c.keys, Found: c.found, Turns: c.turns, Closed: summarize(c.closed()), ours: c.kind != ""}
		o.Closed.OfPlain = ofPlain(c.closed(), plain.closed())
		for _, part := range c.parts() {
			s := summarize(c.at(part))
			s.OfPlain = ofPlain(c.at(part), plain.at(part))
			o.Open = append(o.Open, s)
		}
		r.Contenders = append(r.Contenders, o)
	}
}

func summarize(turns []turn) summary {
	s := summary{turn: turn{Part: turns[0].Part}}
	for _, m := range []struct {
		into *float64
		of   func(turn) float64
	}{
		{&s.Rate, func(t turn) float64 { return t.Rate }}, {&s.Seconds, func(t turn) float64 { return t.Seconds }},
		{&s.PerSecond, turn.perSecond},
		{&s.P50, func(t turn) float64 { return t.P50 }}, {&s.P99, func(t turn) float64 { return t.P99 }}, {&s.P999, func(t turn) float64 { return t.P999 }},
		{&s.Service, func(t turn) float64 { return t.Service }}, {&s.Postgres, func(t turn) float64 { return t.Postgres }},
		{&s.Broker, func(t turn) float64 { return t.Broker }}, {&s.Generator, func(t turn) float64 { return t.Generator }},
		{&s.WAL, func(t turn) float64 { return t.WAL }}, {&s.DrainedMS, func(t turn) float64 { return t.DrainedMS }},
	} {
		*m.into = median(turns, m.of)
	}
	s.Behind = int(median(turns, func(t turn) float64 { return float64(t.Behind) }))
	s.Min, s.Max = turns[0].PerSecond, turns[0].PerSecond
	for _, t := range turns {
		s.Min, s.Max, s.Errors = min(s.Min, t.PerSecond), max(s.Max, t.PerSecond), s.Errors+t.Errors
		s.FirstErrors = append(s.FirstErrors, t.FirstErrors...)
	}
	return s
}

func median(turns []turn, of func(turn) float64) float64 {
	values := make([]float64, len(turns))
	for i, t := range turns {
		values[i] = of(t)
	}
	return middle(values)
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// wrong returns an error when the service was found to be wrong, because then its speed says nothing.
func (r *results) wrong() error {
	for _, c := range r.Contenders {
		if c.ours && c.Found != nil && len(c.Found.Classes) > 0 {
			return fmt.Errorf("%s: answers, rows and messages do not agree: %v", c.Name, c.Found.Classes)
		}
	}
	return nil
}

// write prints the tables, and writes the files.
func (r *results) write(out io.Writer) error {
	if r.Options.JSON != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the results: %w", err)
		}
		if err := os.WriteFile(r.Options.JSON, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everybody
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	if r.Options.SVG != "" {
		if err := os.WriteFile(r.Options.SVG, []byte(r.chart()), 0o644); err != nil { //nolint:gosec // for everybody
			return fmt.Errorf("writing the chart: %w", err)
		}
	}
	_, err := io.WriteString(out, r.text())
	return err
}

func (r *results) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\nClosed loop, %d connections, %d rounds of %s: medians\n\n", r.Machine, r.Options.Connections, r.Options.Rounds, r.Options.Duration)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tper second\tmin–max\tp50 ms\tp99\tp99.9\tservice µs\tPostgreSQL\tbroker\tgenerator\tWAL B\tbehind\terrors\t")
	for _, c := range r.Contenders {
		s := c.Closed
		fmt.Fprintf(w, "%s\t%.0f\t%.0f–%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%d\t\n", c.Name, s.PerSecond, s.Min, s.Max,
			s.P50, s.P99, s.P999, s.Service, s.Postgres, s.Broker, s.Generator, s.WAL, s.Behind, s.Errors)
	}
	_ = w.Flush()
	if len(r.Contenders) > 0 && r.Contenders[0].Closed.OfPlain != nil {
		fmt.Fprintf(&b, "\nClosed loop, as multiples of plain: medians of the quotients within each round\n\n")
		fmt.Fprintln(w, "\tper second\tservice µs\tPostgreSQL\tWAL B\tp99\t")
		for _, c := range r.Contenders {
			q := c.Closed.OfPlain
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", c.Name, q.PerSecond, q.Service, q.Postgres, q.WAL, q.P99)
		}
		_ = w.Flush()
	}
	if len(r.Contenders) > 0 && len(r.Contenders[0].Open) > 0 {
		fmt.Fprintf(&b, "\nOpen loop, %d rounds: latency in ms from when a request was due\n\n", r.Options.OpenRounds)
		fmt.Fprintln(w, "\tof capacity\tdue per second\tanswered\tp50\tp99\tp99.9\tp99 of plain's\terrors\t")
		for _, c := range r.Contenders {
			for _, s := range c.Open {
				multiple := ""
				if s.OfPlain != nil {
					multiple = fmt.Sprintf("%.2f", s.OfPlain.P99)
				}
				fmt.Fprintf(w, "%s\t%.0f %%\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%s\t%d\t\n", c.Name, s.Part*100, s.Rate, s.PerSecond, s.P50, s.P99, s.P999, multiple, s.Errors)
			}
		}
		_ = w.Flush()
	}
	r.appendFindings(&b)
	return b.String()
}

func (r *results) appendFindings(b *strings.Builder) {
	b.WriteString("\nVerified: transactions that committed, and their messages\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tanswered\tcommitted\tvisible\twrong\t")
	for _, c := range r.Contenders {
		if f := c.Found; f != nil {
			wrong := "nothing"
			if len(f.Classes) > 0 {
				wrong = fmt.Sprint(f.Classes)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t\n", c.Name, f.Answered, f.Committed, f.Visible, wrong)
		}
	}
	_ = w.Flush()
	for _, c := range r.Contenders {
		if c.Found != nil {
			for _, example := range c.Found.Examples {
				fmt.Fprintf(b, "%s: %s\n", c.Name, example)
			}
		}
		for _, s := range append([]summary{c.Closed}, c.Open...) {
			for _, e := range s.FirstErrors {
				fmt.Fprintf(b, "%s: %s\n", c.Name, e)
			}
		}
	}
}
