package model

import (
	"flag"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "repeat the schedule of this seed, and print its trace")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	countFlag = flag.Uint64("count", schedules, "how many schedules are explored")
)

// run explores the schedule of a seed in a bubble of its own.
func run(t *testing.T, seed uint64, traced bool, m mutant) (r Result) {
	synctest.Test(t, func(*testing.T) { r = explore(seed, traced, m) })
	return r
}

func TestPromises(t *testing.T) {
	if *seedFlag != 0 {
		repeat(t, *seedFlag)
		return
	}
	start, busy := time.Now(), cpu()
	var next, explored, committed, took atomic.Int64
	next.Store(int64(*fromFlag) - 1)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for seed := uint64(next.Add(1)); seed < *fromFlag+*countFlag && !t.Failed(); seed = uint64(next.Add(1)) {
				r := run(t, seed, false, nil)
				explored.Add(1)
				committed.Add(int64(r.Committed))
				took.Add(int64(r.Took))
				if len(r.Violations) > 0 {
					t.Errorf("seed %d: %s\nrepeat it: go test ./internal/tools/model -run 'TestPromises$' -v -seed %d", seed, strings.Join(r.Violations, "\n"), seed)
				}
			}
		})
	}
	workers.Wait()
	n := float64(explored.Load())
	t.Logf("%d schedules, %.0f/s (%.0f for each second of a core), %.1f transactions and %.1f s of the model's time each", explored.Load(), n/time.Since(start).Seconds(), n/(cpu()-busy).Seconds(),
		float64(committed.Load())/n, time.Duration(took.Load()).Seconds()/n)
}

// repeat prints the schedule of a seed. It is run some times until a promise does not hold; see TestSeedRepeatsItsSchedule.
func repeat(t *testing.T, seed uint64) {
	var r Result
	for try := 0; try < 20 && len(r.Violations) == 0; try++ {
		r = run(t, seed, true, nil)
	}
	t.Logf("seed %d:\n%s", seed, strings.Join(r.Trace, "\n"))
	for _, v := range r.Violations {
		t.Error(v)
	}
}

// TestSeedRepeatsItsSchedule: what a seed has found can be looked at again. A few seeds have moments at which several events are
// ready for one select of the service, among which Go picks by a chance of its own.
func TestSeedRepeatsItsSchedule(t *testing.T) {
	const seeds, most = 50, 10
	differ := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		first, second := run(t, seed, true, nil).Trace, run(t, seed, true, nil).Trace
		slices.Sort(first) // by time: what is of one moment may be traced in any order
		slices.Sort(second)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Logf("seed %d: the traces differ: %s", seed, diff)
			differ++
		}
	}
	if differ > most {
		t.Errorf("%d of %d seeds give another schedule the second time", differ, seeds)
	}
}

// cpu is the time that this process has spent on cores.
func cpu() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
