package faults

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestShort injects every fault that needs no root once, up to three at a time, in three replicas with the race detector.
// Nothing may be found. The long form is `make faults`.
func TestShort(t *testing.T) {
	dir, err := os.MkdirTemp("", "txsvc-faults-")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range Faults() {
		if !f.Root {
			names = append(names, f.Name)
		}
	}
	o := Options{ // a seed with which the lanes are well filled
		Seed: 33, PerFault: 1, Faults: names, Round: time.Hour, Rate: 25, Concurrency: 96, Race: true, Dir: dir,
		Log: slog.New(slog.NewTextHandler(logTo{t}, nil)),
	}
	result, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v (kept: %s)", err, dir)
	}
	for _, finding := range result.Findings {
		t.Error(finding)
	}
	if t.Failed() {
		t.Fatalf("logs and journals: %s", dir)
	}
	_ = os.RemoveAll(dir)
	for _, row := range result.Rows {
		if row.Count != 1 {
			t.Errorf("%s was injected %d times, want once", row.Fault, row.Count)
		}
	}
	if got := result.Total.Committed; got < 1000 {
		t.Errorf("%d transactions were committed, want some thousand", got)
	}
	var table strings.Builder
	if err := result.Print(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

type logTo struct{ t *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func details(rounds [][]planned) (list []string) {
	for _, round := range rounds {
		for _, e := range round {
			list = append(list, e.fault+": "+e.detail+" after "+e.quiet.String())
		}
		list = append(list, "check")
	}
	return list
}

// The same options make the same plan, and another seed makes another one. Every fault is in it as often as asked.
func TestPlan(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range faults {
		names = append(names, f.name)
	}
	first, again, other := plan(7, names, 3, time.Minute), plan(7, names, 3, time.Minute), plan(8, names, 3, time.Minute)
	if !slices.Equal(details(first), details(again)) {
		t.Errorf("the same seed made two plans:\n%q\n%q", details(first), details(again))
	}
	if slices.Equal(details(first), details(other)) {
		t.Error("two seeds made the same plan")
	}
	count := make(map[string]int)
	for i, round := range first {
		length := time.Duration(0)
		for _, e := range round {
			count[e.fault]++
			length += e.length + e.quiet
			if len(e.holds) == 0 || e.length <= 0 && e.fault != "cut-broker" && e.fault != "cut-database" && e.fault != "network-nameserver" {
				t.Errorf("%s (%s) holds %q for %s, want something for some time", e.fault, e.detail, e.holds, e.length)
			}
		}
		if i < len(first)-1 && length < lanes*time.Minute {
			t.Errorf("round %d has faults for %s, want %d lanes full of a minute", i+1, length, lanes)
		}
	}
	for _, name := range names {
		if count[name] != 3 {
			t.Errorf("%s is planned %d times, want 3", name, count[name])
		}
	}
	// A fault's parameters do not depend on the other faults.
	alone := plan(7, []string{"replica-kill"}, 3, time.Minute)
	for _, e := range alone[0] {
		if !slices.ContainsFunc(first, func(round []planned) bool {
			return slices.ContainsFunc(round, func(p planned) bool { return p.fault == e.fault && p.detail == e.detail })
		}) {
			t.Errorf("%s (%s) is not in the larger plan", e.fault, e.detail)
		}
	}
}

// An event waits while another one holds its part of the world, and events that hold other parts overtake it.
func TestSchedule(t *testing.T) {
	t.Parallel()
	on := func(fault string, holds ...string) planned { return planned{event: event{fault: fault, holds: holds}} }
	s := newSchedule([]planned{on("1", "a", "b"), on("2", "b"), on("3", "c"), on("4", "a")})
	first, _ := s.take()
	second, _ := s.take()
	if first.fault != "1" || second.fault != "3" {
		t.Errorf("took %s and %s, want 1 and 3", first.fault, second.fault)
	}
	if e, ok := s.take(); ok {
		t.Errorf("took %s, which has to wait", e.fault)
	}
	s.release(first)
	third, _ := s.take()
	fourth, _ := s.take()
	if third.fault != "2" || fourth.fault != "4" || len(s.left) != 0 {
		t.Errorf("took %s and %s, want 2 and 4", third.fault, fourth.fault)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"unknown fault": {PerFault: 1, Round: time.Second, Faults: []string{"flood"}},
		"none of each":  {Round: time.Second},
		"no time":       {PerFault: 1},
	} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
