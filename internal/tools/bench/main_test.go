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

	"github.com/txsvc/txsvc/internal/tools/verify"
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
	if q := c.Closed.OfPlain; q == nil || q.PerSecond <= 0 || !messages && *q != (quotients{1, 1, 1, 1, 1}) {
		t.Errorf("%s: got the multiples of plain %+v", c.Name, q)
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

// TestOfPlain: each round has a quotient of its own, so that a machine that gets slower changes none.
func TestOfPlain(t *testing.T) {
	t.Parallel()
	var turns, plain []turn
	for _, speed := range []float64{1000, 100, 10} {
		turns = append(turns, turn{PerSecond: speed / 2, Service: 3000 / speed, Postgres: 1, WAL: 3, P99: 8})
		plain = append(plain, turn{PerSecond: speed, Service: 1000 / speed, Postgres: 2, WAL: 2, P99: 2})
	}
	if got, want := *ofPlain(turns, plain), (quotients{PerSecond: .5, Service: 3, Postgres: .5, WAL: 1.5, P99: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ofPlain(turns, nil); got != nil {
		t.Errorf("without plain: got %+v", got)
	}
}

func TestWrongRunsFail(t *testing.T) {
	t.Parallel()
	lost := &verify.Findings{Classes: map[string]int{verify.Lost: 1}}
	r := results{Contenders: []outcome{{Name: "java", Found: lost}, {Name: "sql", ours: true, Found: &verify.Findings{}}}}
	if err := r.wrong(); err != nil {
		t.Errorf("what another program has lost: got the error %v", err)
	}
	r.Contenders[1].Found = lost
	if err := r.wrong(); err == nil || !strings.Contains(err.Error(), "sql") {
		t.Errorf("what the service has lost: got the error %v", err)
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
