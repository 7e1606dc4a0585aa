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
}

// summary has the medians of turns of one sort.
type summary struct {
	turn
	Min float64 `json:"min_per_second"`
	Max float64 `json:"max_per_second"`
	// Ratio is to the plain handler: the median over the rounds of the quotients within each. 0: it did not take part.
	Ratio float64 `json:"ratio,omitempty"`
}

func (c *contender) closed() (list []turn) {
	for _, t := range c.turns {
		if t.Part == 0 {
			list = append(list, t)
		}
	}
	return list
}

func (r *results) add(list []*contender) {
	var plain []turn
	for _, c := range list {
		if c.name == "plain" {
			plain = c.closed()
		}
	}
	for _, c := range list {
		o := outcome{Name: c.name, Does: c.does, Keys: c.keys, Found: c.found, Turns: c.turns, Closed: summarize(c.closed())}
		if len(plain) > 0 {
			var quotients []float64
			for i, t := range c.closed() {
				quotients = append(quotients, t.PerSecond/plain[i].PerSecond)
			}
			o.Closed.Ratio = middle(quotients)
		}
		byPart := map[float64][]turn{}
		var parts []float64
		for _, t := range c.turns {
			if t.Part != 0 {
				if byPart[t.Part] == nil {
					parts = append(parts, t.Part)
				}
				byPart[t.Part] = append(byPart[t.Part], t)
			}
		}
		for _, part := range parts {
			o.Open = append(o.Open, summarize(byPart[part]))
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
	fmt.Fprintln(w, "\tper second\tmin–max\tof plain\tp50 ms\tp99\tp99.9\tservice µs\tPostgreSQL\tbroker\tgenerator\tWAL B\tbehind\terrors\t")
	for _, c := range r.Contenders {
		s := c.Closed
		fmt.Fprintf(w, "%s\t%.0f\t%.0f–%.0f\t%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t%d\t\n", c.Name, s.PerSecond, s.Min, s.Max, ratio(s.Ratio),
			s.P50, s.P99, s.P999, s.Service, s.Postgres, s.Broker, s.Generator, s.WAL, s.Behind, s.Errors)
	}
	_ = w.Flush()
	if len(r.Contenders) > 0 && len(r.Contenders[0].Open) > 0 {
		fmt.Fprintf(&b, "\nOpen loop, %d rounds: latency in ms from when a request was due\n\n", r.Options.OpenRounds)
		fmt.Fprintln(w, "\tof capacity\tdue per second\tanswered\tp50\tp99\tp99.9\terrors\t")
		for _, c := range r.Contenders {
			for _, s := range c.Open {
				fmt.Fprintf(w, "%s\t%.0f %%\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t\n", c.Name, s.Part*100, s.Rate, s.PerSecond, s.P50, s.P99, s.P999, s.Errors)
			}
		}
		_ = w.Flush()
	}
	r.appendFindings(&b)
	return b.String()
}

func ratio(r float64) string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r)
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
