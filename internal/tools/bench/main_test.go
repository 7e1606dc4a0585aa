//go:build linux

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestShortRun runs the benchmark in its shortest form. Its floor is loose, because machines that run tests are busy: contenders answer,
// nothing fails, all figures are there, and the run is found to be right.
func TestShortRun(t *testing.T) {
	dir := t.TempDir()
	o := options{
		Only: "plain,sql,outbox", Rounds: 1, Duration: time.Second, Warm: 100 * time.Millisecond, Connections: 8,
		Rates: "0.5", OpenRounds: 1, Root: "../../..", JSON: filepath.Join(dir, "bench.json"), SVG: filepath.Join(dir, "bench.svg"),
	}
	r, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contenders {
		checkFloor(t, &c)
	}
	var text strings.Builder
	if err := r.write(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	var read results
	written, err := os.ReadFile(o.JSON)
	if err == nil {
		err = json.Unmarshal(written, &read)
	}
	if err != nil || len(read.Contenders) != 3 || read.Machine.Settings["fsync"] != "on" || read.Machine.Kernel == "" {
		t.Errorf("the JSON file: %v\n%s", err, written)
	}
	checkXML(t, o.SVG)
}

func checkFloor(t *testing.T, c *outcome) {
	t.Helper()
	const floor = 5 // per second
	if c.Closed.PerSecond < floor {
		t.Errorf("%s: got %g per second, want at least %d", c.Name, c.Closed.PerSecond, floor)
	}
	messages := c.Name != "plain"
	for _, s := range append([]summary{c.Closed}, c.Open...) {
		if s.Errors > 0 || s.P50 <= 0 || s.P99 < s.P50 || s.P999 < s.P99 {
			t.Errorf("%s: got %+v, want growing quantiles, and no errors", c.Name, s)
		}
		if s.Service <= 0 || s.Postgres <= 0 || s.WAL < 100 || messages && s.Broker <= 0 {
			t.Errorf("%s: got no CPU time or WAL: %+v", c.Name, s)
		}
	}
	if len(c.Open) != 1 || c.Open[0].Part != .5 || c.Open[0].Rate > c.Closed.PerSecond {
		t.Errorf("%s: got the open loops %+v, want one at half of %g", c.Name, c.Open, c.Closed.PerSecond)
	}
	switch f := c.Found; {
	case f == nil || len(f.Classes) > 0 || f.Answered == 0 || f.Committed < f.Answered:
		t.Errorf("%s: verified: got %+v, want all answered ones committed", c.Name, f)
	case messages && f.Visible != f.Committed:
		t.Errorf("%s: got %d messages of %d committed transactions", c.Name, f.Visible, f.Committed)
	}
}

func checkXML(t *testing.T, file string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	decoder := xml.NewDecoder(in)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the chart: %v", err)
		}
	}
}

func TestChooseNames(t *testing.T) {
	t.Parallel()
	all := new(bench).contenders()
	if _, err := choose(all, names("plain,sq")); err == nil || !strings.Contains(err.Error(), `no contender "sq"`) {
		t.Errorf("got the error %v", err)
	}
	chosen, err := choose(all, names("outbox, plain"))
	if err != nil || len(chosen) != 2 || chosen[0].name != "outbox" {
		t.Errorf("got %d contenders, %v", len(chosen), err)
	}
	if chosen, err = choose(all, nil); err != nil || len(chosen) != len(all) {
		t.Errorf("without names: got %d contenders, %v", len(chosen), err)
	}
}
