package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The chart has three parts beside each other, with one line per contender: throughput, CPU per transaction, and latency at half of the
// capacity. Colours are readable on white and on black.
const (
	chartWidth, labelWidth, partWidth, gap = 960, 80, 260, 32
	lineHeight, barHeight, top             = 30, 16, 62
	valueWidth                             = 64 // for the number behind a bar
)

var chartColours = struct{ service, postgres, broker, p50, p99 string }{"#4c78a8", "#f58518", "#54a24b", "#8fb8de", "#e45756"}

// svg writes the chart.
type svg struct {
	strings.Builder
}

func (s *svg) text(x, y float64, anchor, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(s, []byte(text)) // a Builder returns no error
	fmt.Fprintln(s, "</text>")
}

func (s *svg) bar(x, y, width, height float64, colour, title string) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>`, x, y, max(width, 0), height, colour)
	_ = xml.EscapeText(s, []byte(title))
	fmt.Fprintln(s, "</title></rect>")
}

// chart draws the results.
func (r *results) chart() string {
	s := new(svg)
	height := top + lineHeight*len(r.Contenders) + 34
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" fill="#777">`+"\n", chartWidth, height)
	for i, c := range r.Contenders {
		s.text(labelWidth-8, lineOf(i)+barHeight-4, "end", c.Name)
	}
	r.drawThroughput(s, partAt(0))
	r.drawCPU(s, partAt(1))
	r.drawLatency(s, partAt(2))
	s.text(chartWidth/2, float64(height-10), "middle", fmt.Sprintf("%d × %s, PostgreSQL %s, RocketMQ %s, all on one machine; medians of %d rounds of %s",
		r.Machine.Cores, r.Machine.CPU, r.Machine.PostgreSQL, r.Machine.RocketMQ, r.Options.Rounds, r.Options.Duration))
	fmt.Fprintln(s, "</svg>")
	return s.String()
}

func partAt(i int) float64 { return float64(labelWidth + i*(partWidth+gap)) }

func lineOf(i int) float64 { return float64(top + i*lineHeight) }

// sign is one sign of a legend.
type sign struct{ colour, name string }

func (s *svg) head(x float64, title string, legend ...sign) {
	s.text(x, 20, "start", title)
	for _, l := range legend {
		s.bar(x, 34, 10, 10, l.colour, l.name)
		s.text(x+14, 43, "start", l.name)
		x += 28 + 7*float64(len(l.name))
	}
}

// scale returns how many pixels one unit has.
func scale(most float64) float64 {
	if most <= 0 {
		return 0
	}
	return (partWidth - valueWidth) / most
}

func (r *results) largest(of func(*outcome) float64) (most float64) {
	for i := range r.Contenders {
		most = max(most, of(&r.Contenders[i]))
	}
	return most
}

func (r *results) drawThroughput(s *svg, x float64) {
	s.head(x, fmt.Sprintf("transactions per second, %d connections", r.Options.Connections), sign{chartColours.service, "median; the line is min to max"})
	unit := scale(r.largest(func(o *outcome) float64 { return o.Closed.Max }))
	for i, c := range r.Contenders {
		y := lineOf(i)
		s.bar(x, y, c.Closed.PerSecond*unit, barHeight, chartColours.service, c.Does)
		s.bar(x+c.Closed.Min*unit, y+barHeight/2-1, (c.Closed.Max-c.Closed.Min)*unit, 2, "#777", "min to max")
		s.text(x+c.Closed.Max*unit+6, y+barHeight-4, "start", thousands(c.Closed.PerSecond))
	}
}

func (r *results) drawCPU(s *svg, x float64) {
	s.head(x, "CPU per transaction, µs",
		sign{chartColours.service, "program"}, sign{chartColours.postgres, "PostgreSQL"}, sign{chartColours.broker, "broker"})
	sum := func(o *outcome) float64 { return o.Closed.Service + o.Closed.Postgres + o.Closed.Broker }
	unit := scale(r.largest(sum))
	for i := range r.Contenders {
		c, at := &r.Contenders[i], x
		for _, part := range []struct {
			us           float64
			colour, name string
		}{{c.Closed.Service, chartColours.service, "program"}, {c.Closed.Postgres, chartColours.postgres, "PostgreSQL"}, {c.Closed.Broker, chartColours.broker, "broker"}} {
			s.bar(at, lineOf(i), part.us*unit, barHeight, part.colour, fmt.Sprintf("%s: %.0f µs", part.name, part.us))
			at += part.us * unit
		}
		s.text(at+6, lineOf(i)+barHeight-4, "start", thousands(sum(c)))
	}
}

func (r *results) drawLatency(s *svg, x float64) {
	half := func(o *outcome) *summary {
		i := slices.IndexFunc(o.Open, func(s summary) bool { return s.Part == .5 })
		if i < 0 {
			return nil
		}
		return &o.Open[i]
	}
	most := r.largest(func(o *outcome) float64 {
		if h := half(o); h != nil {
			return h.P99
		}
		return 0
	})
	if most == 0 {
		return
	}
	s.head(x, "latency at half of its own capacity, ms", sign{chartColours.p50, "p50"}, sign{chartColours.p99, "p99"})
	unit := scale(most)
	for i := range r.Contenders {
		h := half(&r.Contenders[i])
		if h == nil {
			continue
		}
		y := lineOf(i)
		s.bar(x, y, h.P99*unit, barHeight, chartColours.p99, fmt.Sprintf("p99: %.1f ms", h.P99))
		s.bar(x, y, h.P50*unit, barHeight, chartColours.p50, fmt.Sprintf("p50: %.1f ms", h.P50))
		s.text(x+h.P99*unit+6, y+barHeight-4, "start", fmt.Sprintf("%.1f / %.1f", h.P50, h.P99))
	}
}

// thousands writes a number without decimals: 12,345.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", math.Round(v))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
