package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/txsvc/txsvc/internal/tools/verify"
)

// trial is one round's load and its check.
type trial struct{ run *verify.Run }

// settleLimit bounds each wait of a check. Messages that a broker's restart holds up are the slowest.
const settleLimit = 2 * time.Minute

func newTrial(ctx context.Context, w *world, o Options, number int) (*trial, error) {
	stack := verify.Stack{
		URLs: w.urls(), DatabaseURL: w.stack.EitherURL(), Broker: verify.Broker{Nameservers: w.stack.Nameservers()},
	}
	load := verify.Load{
		Run: fmt.Sprintf("s%dr%d", o.Seed, number), Seed: o.Seed + uint64(number), Kinds: loads(), Keys: keyCount, Duration: time.Hour, // until it is stopped
		Rate: o.Rate, Concurrency: o.Concurrency, RequestTimeout: 15 * time.Second, RetryFor: retryFor, Shares: verify.DefaultShares(),
	}
	journal := filepath.Join(w.dir, fmt.Sprintf("round-%d.journal", number))
	run, err := verify.Start(ctx, stack, load, verify.Options{Journal: journal, Settle: settleLimit, Logger: w.log})
	if err != nil {
		return nil, fmt.Errorf("preparing the load: %w", err)
	}
	return &trial{run}, nil
}

// keyCount is so small that keys have several transactions in flight.
const keyCount = 500

// retryFor is the time after which a client leaves a transaction undecided. It is short, because otherwise all clients
// would soon wait for the part that is broken.
const retryFor = 6 * time.Second

func (t *trial) load(ctx context.Context) error { return t.run.Load(ctx) }

func (t *trial) posted() int { return int(t.run.Progress().Done) }

// warm returns nil once the load runs. The first orders, to which others refer, have to be committed before anything
// breaks.
func (t *trial) warm() error {
	if done := t.posted(); done < warmAfter {
		return fmt.Errorf("%d transactions are done", done)
	}
	return nil
}

const warmAfter = 150

// check also closes the run. The journal stays after a finding.
func (t *trial) check(ctx context.Context) (Counts, []string, error) {
	report, err := t.run.Check(ctx)
	if err != nil {
		return Counts{}, nil, err
	}
	var findings []string
	for _, f := range report.Findings {
		findings = append(findings, fmt.Sprintf("%s: %s: %s", f.Class, f.ID, f.Detail))
	}
	for _, what := range report.Unproven {
		findings = append(findings, "not proved: "+what)
	}
	if len(findings) > 0 {
		return countsOf(report), findings, errors.Join(writeReport(t.run.Journal()+".json", report), t.run.Close())
	}
	return countsOf(report), nil, errors.Join(t.run.Close(), os.Remove(t.run.Journal()))
}

func writeReport(path string, report *verify.Report) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // in the run's directory
	if err != nil {
		return err
	}
	return errors.Join(report.WriteJSON(f), f.Close())
}

func countsOf(r *verify.Report) Counts {
	return Counts{
		Posted: int(r.Posted), Committed: int(r.Committed), Visible: int(r.Visible + r.Doubled), Unknown: int(r.Answers["post"]["unknown"]),
		Lost: int(r.Lost), Doubled: int(r.Doubled), Ghost: int(r.Ghosts), WrongQueue: int(r.WrongQueue), Inversions: int(r.Inversions),
		FalseAnswers: int(r.FalseAnswers), Other: int(r.WrongContent+r.Unsent) + len(r.Unproven),
	}
}
