package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// Options are the options of a run. The plan is a function of Seed, PerFault, Faults and Round.
type Options struct {
	Seed     uint64
	PerFault int           // how often each fault is injected
	Faults   []string      // names; empty: all that are possible on this machine
	Round    time.Duration // about the time with faults between two checks
	Only     int           // the number of the one round to run, from 1; 0: all

	Rate        float64 // transactions per second
	Concurrency int
	Race        bool   // build the service with the race detector
	Binary      string // the service, built with the tag failpoints; empty: it is built

	Dir string // of everything; it stays after a finding
	Log *slog.Logger
}

// Fault names and describes one fault, for people.
type Fault struct {
	Name, About string
	Root        bool
}

// Faults returns all faults.
func Faults() []Fault {
	list := make([]Fault, len(faults))
	for i, f := range faults {
		list[i] = Fault{f.name, f.about, f.root}
	}
	return list
}

func (o *Options) validate() error {
	for _, name := range o.Faults {
		if _, ok := faultNamed(name); !ok {
			return fmt.Errorf("no fault has the name %q", name)
		}
	}
	if o.PerFault < 1 || o.Round <= 0 || o.Only < 0 {
		return fmt.Errorf("%d of each fault in rounds of %s, round %d: these must be positive", o.PerFault, o.Round, o.Only)
	}
	if len(o.Faults) == 0 {
		for _, f := range faults {
			o.Faults = append(o.Faults, f.name)
		}
	}
	return nil
}

// needs reports whether any of the faults is part of the run.
func (o *Options) needs(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(o.Faults, name) })
}

// leaveOut drops faults that are not possible on this machine, and returns the reasons.
func (o *Options) leaveOut(ctx context.Context) (reasons []string) {
	drop := func(why string, names ...string) {
		if o.needs(names...) {
			o.Faults = slices.DeleteFunc(slices.Clone(o.Faults), func(name string) bool { return slices.Contains(names, name) })
			reasons = append(reasons, fmt.Sprintf("%v: %s", names, why))
		}
	}
	if os.Geteuid() != 0 {
		drop("needs root", "packets-broker", "packets-database", "index-behind", "disk-full")
	} else if err := findStalePackets(ctx); err != nil {
		drop(err.Error(), "packets-broker", "packets-database")
	}
	if _, err := fakeTime(); err != nil {
		drop(err.Error(), "clock-skew")
	}
	return reasons
}

// Run plans, runs and checks. The result has the findings; an error means that the run itself failed.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	result := &Result{Seed: o.Seed, Began: time.Now().UTC(), Dir: o.Dir, LeftOut: o.leaveOut(ctx)}
	for _, reason := range result.LeftOut {
		o.Log.WarnContext(ctx, "faults that this machine cannot have are left out", "faults", reason)
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if o.needs("packets-broker", "packets-database") {
		defer dropOwnTables(context.WithoutCancel(ctx))
	}
	result.faults(o.Faults)
	rounds := plan(o.Seed, o.Faults, o.PerFault, o.Round)
	for i, round := range rounds {
		if o.Only > 0 && o.Only != i+1 {
			continue
		}
		o.Log.InfoContext(ctx, "round", "number", i+1, "of", len(rounds), "faults", len(round))
		if err = w.round(ctx, o, i+1, round, result); err != nil || ctx.Err() != nil || len(result.Findings) > 0 {
			break
		}
	}
	if err == nil {
		err = w.sweep(context.WithoutCancel(ctx), result)
	}
	result.Took = time.Since(result.Began)
	return result, err
}

// round puts load on, injects the faults, lets the load go on for a moment, and checks.
func (w *world) round(ctx context.Context, o Options, number int, round []planned, result *Result) error {
	trial, err := newTrial(ctx, w, o, number)
	if err != nil {
		return fmt.Errorf("round %d: %w", number, err)
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan error, 1)
	go func() { loaded <- trial.load(loading) }()
	_ = retry(ctx, settleLimit, trial.warm) // if it does not get warm, the load fails
	failed := w.inject(ctx, number, round, trial, result)
	pause.For(ctx, calm)
	stop()
	err = errors.Join(failed, <-loaded)
	if err != nil {
		return fmt.Errorf("round %d: %w", number, err)
	}
	counts, findings, err := trial.check(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("round %d: %w", number, err)
	}
	findings = append(findings, w.unasked()...)
	result.add(number, round, counts, findings)
	w.log.InfoContext(ctx, "round checked", "number", number, "counts", counts.String(), "findings", len(findings))
	return nil
}

// calm is the time for which the load goes on after everything is healed.
const calm = 2 * time.Second

// inject runs the events in their lanes. The first that fails ends the round.
func (w *world) inject(ctx context.Context, number int, round []planned, t *trial, result *Result) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	s := newSchedule(round)
	var group sync.WaitGroup
	lane := func() {
		mu.Lock()
		defer mu.Unlock()
		for len(s.left) > 0 && ctx.Err() == nil {
			e, ok := s.take()
			if !ok {
				changed.Wait()
				continue
			}
			mu.Unlock()
			if err := w.happen(ctx, number, e, t, result); err != nil {
				cancel(fmt.Errorf("%s (%s): %w", e.fault, e.detail, err))
			}
			mu.Lock()
			s.release(e)
			changed.Broadcast()
		}
	}
	for range lanes {
		group.Go(lane)
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (w *world) happen(ctx context.Context, number int, e planned, t *trial, result *Result) error {
	if pause.For(ctx, e.quiet); ctx.Err() != nil {
		return nil //nolint:nilerr // the run was ended, which is no error of this event
	}
	began, posted := time.Now(), t.posted()
	w.log.InfoContext(ctx, "fault", "round", number, "fault", e.fault, "detail", e.detail)
	proof, err := e.run(ctx, w)
	if err != nil {
		return err
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	w.log.InfoContext(ctx, "healed", "round", number, "fault", e.fault, "took", took.String(), "proof", proof)
	result.happened(Happened{Round: number, Fault: e.fault, Detail: e.detail, Proof: proof, Began: began.UTC(), Took: took, Posted: t.posted() - posted})
	return nil
}
