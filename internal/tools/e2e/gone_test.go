package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

var (
	goneFor  = flag.Duration("gone", 8*time.Second, "how long the dependency is gone in TestBrokerGone and TestDatabaseGone")
	goneRate = flag.Int("gone-rate", 40, "requests a second meanwhile")
	goneSize = flag.Int("gone-size", 8<<10, "bytes of each payload")
)

// outage is one way for a dependency to be gone, and to come back.
type outage struct {
	begin, end func(*testing.T, *devstack.Process)
}

// silent: its connections stay, and it answers nothing.
var silent = outage{
	func(_ *testing.T, p *devstack.Process) { p.Pause() },
	func(_ *testing.T, p *devstack.Process) { p.Resume() },
}

func startAgain(t *testing.T, p *devstack.Process) {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// usage of a process at one moment.
type usage struct {
	live       float64 // bytes of the heap that the last collection has left, and stacks
	resident   float64 // bytes
	goroutines float64
	inFlight   float64
}

// usage reads the process's metrics.
func (s *service) usage() usage {
	_, text := s.page("/metrics")
	return usage{
		// The next collection begins when this has doubled (GOGC).
		live:       sumOf(s.t, text, "go_memstats_next_gc_bytes ") / 2,
		resident:   sumOf(s.t, text, "process_resident_memory_bytes "),
		goroutines: sumOf(s.t, text, "go_goroutines "),
		inFlight:   sumOf(s.t, text, "txsvc_in_flight "),
	}
}

func (u usage) String() string {
	return fmt.Sprintf("live %.1f MiB, resident %.1f MiB, %.0f goroutines, %.0f in flight", u.live/(1<<20), u.resident/(1<<20), u.goroutines, u.inFlight)
}

// watch samples until the moment comes, and once in any case.
func (s *service) watch(until time.Time) (samples []usage) {
	for len(samples) == 0 || time.Now().Before(until) {
		samples = append(samples, s.usage())
		time.Sleep(min(time.Until(until), 500*time.Millisecond)) // the samples' distance
	}
	return samples
}

// median of each of the figures, over the samples.
func median(samples []usage) usage {
	of := func(value func(usage) float64) float64 {
		values := make([]float64, len(samples))
		for i, u := range samples {
			values[i] = value(u)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return usage{
		live: of(func(u usage) float64 { return u.live }), resident: of(func(u usage) float64 { return u.resident }),
		goroutines: of(func(u usage) float64 { return u.goroutines }), inFlight: of(func(u usage) float64 { return u.inFlight }),
	}
}

// claimsLive is more than the messages take that the relay claims at a time, however many wait.
const claimsLive = 48 << 20

// bounded checks that there are no more goroutines than before, but for those of the requests that were in flight at most:
// their clients keep the connections.
func (u usage) bounded(t *testing.T, before usage, samples []usage) {
	t.Helper()
	most := 0.0
	for _, s := range samples {
		most = max(most, s.inFlight)
	}
	if u.goroutines > before.goroutines+4*most+100 {
		t.Errorf("%.0f goroutines became %.0f, with %.0f requests in flight at most", before.goroutines, u.goroutines, most)
	}
}

// large is a request of a counted kind with much in it.
func large(kind, id, key string) string {
	return fmt.Sprintf(`{"kind": %q, "id": %q, "shard_key": %q, "payload": {"id": %[2]q, "filling": %q}}`, kind, id, key, strings.Repeat("x", *goneSize))
}

// loss is what was seen of a service while it lost a dependency.
type loss struct {
	requests    *stream
	began, gone time.Time
	usual       usage   // before
	samples     []usage // meanwhile
}

// loseWhileBusy posts requests of the kinds in turns, and takes the dependency away for a while. It returns when it is to come
// back; the requests go on.
func (s *service) loseWhileBusy(how outage, p *devstack.Process, kinds ...string) *loss {
	s.t.Helper()
	w := &loss{began: time.Now()}
	w.requests = startStream(s.t, []*service{s}, *goneRate, func(n int) string {
		return large(kinds[n%len(kinds)], fmt.Sprint("gone-", n), fmt.Sprint("key-", n%40))
	})
	w.usual = median(s.watch(w.began.Add(*goneFor / 4)))
	w.gone = time.Now()
	how.begin(s.t, p)
	w.samples = s.watch(w.gone.Add(*goneFor))
	return w
}

// firstAndLast are the medians of the first and the last third of the loss.
func (w *loss) firstAndLast() (first, last usage) {
	third := max(1, len(w.samples)/3)
	return median(w.samples[:third]), median(w.samples[len(w.samples)-third:])
}

// TestBrokerGone: requests come all the time while no broker answers. They are committed, in memory that does not grow;
// then all that waited is delivered, once and in order, while requests go on.
//
//	go test -run TestBrokerGone -v -timeout 1h ./internal/tools/e2e -gone 10m -gone-rate 200
func TestBrokerGone(t *testing.T) {
	killed := outage{func(_ *testing.T, p *devstack.Process) { p.Kill() }, startAgain}
	for name, outage := range map[string]outage{"killed": killed, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
			e.counted()
			s := e.start().ready()
			w := s.loseWhileBusy(outage, stack.Broker(0), "fallback", "unordered")
			back := time.Now()
			outage.end(t, stack.Broker(0))
			backlog := e.pendingSince(back)
			draining := s.drain(e, back)
			drained := time.Now()
			w.requests.end()

			first, last := w.firstAndLast()
			meanwhile, after := w.requests.between(w.gone, back), w.requests.between(back, drained)
			t.Logf("before: %s; %s", w.requests.between(w.began, w.gone), w.usual)
			t.Logf("gone for %s: %s; at first %s; in the end %s", back.Sub(w.gone).Round(time.Second), meanwhile, first, last)
			t.Logf("drained %d in %s, %.0f a second: %s; %s", backlog, drained.Sub(back).Round(time.Millisecond), float64(backlog)/drained.Sub(back).Seconds(), after, median(draining))
			// What is kept of each request would show, in a long outage: it is a good part of what came.
			if grown, came := last.live-first.live, float64(len(meanwhile)*2/3**goneSize); grown > max(came/8, claimsLive) {
				t.Errorf("the live heap grew by %.0f bytes while %.0f came", grown, came)
			}
			last.bounded(t, w.usual, w.samples)
			for _, part := range []answersSeen{meanwhile, after} {
				if got := part.count(http.StatusCreated); got < len(part)*95/100 { // a loaded machine may time out
					t.Errorf("%d of %d requests were answered 201: %s", got, len(part), part)
				}
			}
			if got, want := e.settleInOrder(60*time.Second), w.requests.between(w.began, time.Now()).count(http.StatusCreated); got < want {
				t.Errorf("%d messages are delivered, %d transactions were answered 201", got, want)
			}
		})
	}
}

// pendingSince counts what was committed before and is pending now.
func (e *env) pendingSince(t time.Time) (n int) {
	e.t.Helper()
	await.Success(e.t, recoverLimit, func() error {
		return e.db.QueryRow(context.Background(), `SELECT count(*) FROM txsvc.current WHERE delivery = 'pending' AND created_at < $1`, t).Scan(&n)
	})
	return n
}

// drain samples until all that was committed before is delivered.
func (s *service) drain(e *env, before time.Time) (samples []usage) {
	s.t.Helper()
	await.Success(s.t, recoverLimit+2**goneFor, func() error {
		samples = append(samples, s.usage())
		if n := e.pendingSince(before); n > 0 {
			return fmt.Errorf("%d are pending", n)
		}
		return nil
	})
	return samples
}

// TestDatabaseGone: requests come all the time while PostgreSQL does not answer. Each is refused within its time, and no
// more wait than come in that time; when it is back, requests are answered as before.
//
//	go test -run TestDatabaseGone -v -timeout 1h ./internal/tools/e2e -gone 5m -gone-rate 200
func TestDatabaseGone(t *testing.T) {
	stopped := outage{func(t *testing.T, p *devstack.Process) {
		if err := p.StopImmediate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, startAgain}
	for name, outage := range map[string]outage{"stopped": stopped, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, stack := newLentEnv(t, devstack.Options{BrokerConfig: impatient})
			e.counted()
			s := e.start().ready()
			w := s.loseWhileBusy(outage, stack.Postgres(), "half", "fallback", "unordered")
			waiting := w.requests.inFlight()
			back := time.Now()
			outage.end(t, stack.Postgres())
			recovered := w.requests.firstCreated(back)
			w.requests.end()

			meanwhile := w.requests.between(w.gone, back)
			first, last := w.firstAndLast()
			t.Logf("before: %s; %s", w.requests.between(w.began, w.gone), w.usual)
			t.Logf("gone for %s: %s; at first %s; in the end %s, %d wait", back.Sub(w.gone).Round(time.Second), meanwhile, first, last, waiting)
			t.Logf("the first 201 after %s; then %s", recovered.Sub(back).Round(time.Millisecond), w.requests.between(recovered, time.Now()))
			if longest := meanwhile.quantile(1); longest > requestLimit {
				t.Errorf("a request was answered after %s, want at most %s", longest, requestLimit)
			}
			if limit := *goneRate * int(requestLimit/time.Second); waiting > limit {
				t.Errorf("%d requests wait, want at most the %d that come in %s", waiting, limit, requestLimit)
			}
			last.bounded(t, w.usual, w.samples)
			if got, want := e.settleInOrder(60*time.Second), w.requests.between(w.began, time.Now()).count(http.StatusCreated); got < want {
				t.Errorf("%d messages are delivered, %d transactions were answered 201", got, want)
			}
			await.Success(t, recoverLimit, func() error {
				if got := s.metric("txsvc_in_flight "); got != 0 {
					return fmt.Errorf("%.0f requests are in flight", got)
				}
				return nil
			})
		})
	}
}

// requestLimit is longer than the counted kinds' requests may take: sending a half message, the local transaction's timeout,
// and finding out how a COMMIT ended.
const requestLimit = 15 * time.Second

// firstCreated waits for a request that was sent after the moment and answered 201, and returns when it was sent.
func (s *stream) firstCreated(after time.Time) (first time.Time) {
	s.t.Helper()
	await.Success(s.t, recoverLimit, func() error {
		created := s.between(after, time.Now())
		created = slices.DeleteFunc(created, func(a timedAnswer) bool { return a.status != http.StatusCreated })
		if len(created) == 0 {
			return fmt.Errorf("none of %d requests", len(s.between(after, time.Now())))
		}
		first = slices.MinFunc(created, func(a, b timedAnswer) int { return a.began.Compare(b.began) }).began
		return nil
	})
	return first
}
