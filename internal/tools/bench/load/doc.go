// Package load posts HTTP requests as fast as a server answers them (closed loop), or at a fixed rate (open loop), and measures
// when each is answered. One thread serves all connections with epoll, so that the generator costs little beside the server
// that it shares a machine with: about 6 µs per request on a quiet machine, as wrk. It knows as much of HTTP/1.1 as servers of a benchmark need:
// persistent connections, and answers with a Content-Length.
//
// # Coordinated omission
//
// In an open loop, requests are due at times that do not depend on answers, and a request's latency counts from the time at
// which it was due. A request that finds no free connection waits for one, and the wait counts. So a server that stands still
// for a second shows in the latency of all requests that were due in that second. What was due before the end of the load is sent
// after it, for 10 s at most.
package load

import (
	"slices"
	"time"
)

// Options describe one load.
type Options struct {
	Address     string        // host:port
	Connections int           // at most so many requests are under way
	Rate        float64       // requests per second of an open loop; 0: a closed loop
	Duration    time.Duration // from the first request to the last
	// Append appends the n-th request (from 0), with its header, and returns the longer slice. It is never called concurrently.
	Append func(b []byte, n int) []byte
	// Answer gets the status and the body of each answer, when it is not nil. The body is only valid during the call. It runs on
	// the generator's thread, so it has to be fast.
	Answer func(status int, body []byte)
}

// Result is what came of a load.
type Result struct {
	Begin   time.Time
	Samples []Sample // answers 2xx, in the order in which they came
	Sent    int
	Failed  int      // other answers, broken connections, and requests without an answer
	Reasons []string // of the first failures
}

// Sample is one answer.
type Sample struct {
	At      uint32 // µs from Result.Begin to the answer
	Latency uint32 // µs from when the request was due to the answer
}

// Window has the answers of a part of a load.
type Window struct {
	Count     int
	Elapsed   time.Duration
	latencies []uint32 // sorted
}

// Between returns the answers that came between two times.
func (r *Result) Between(from, to time.Time) Window {
	return r.window(from, to, func(s Sample) int64 { return int64(s.At) })
}

// DueBetween returns the answers to requests that were due between two times, whenever they came.
func (r *Result) DueBetween(from, to time.Time) Window {
	return r.window(from, to, func(s Sample) int64 { return int64(s.At) - int64(s.Latency) })
}

func (r *Result) window(from, to time.Time, when func(Sample) int64) Window {
	first, last := from.Sub(r.Begin).Microseconds(), to.Sub(r.Begin).Microseconds()
	w := Window{Elapsed: to.Sub(from)}
	for _, s := range r.Samples {
		if at := when(s); at >= first && at < last {
			w.latencies = append(w.latencies, s.Latency)
		}
	}
	slices.Sort(w.latencies)
	w.Count = len(w.latencies)
	return w
}

// PerSecond returns the rate of the answers.
func (w Window) PerSecond() float64 { return float64(w.Count) / w.Elapsed.Seconds() }

// Quantile returns the latency that the share q (0 to 1) of the answers did not exceed; 0 when there are none.
func (w Window) Quantile(q float64) time.Duration {
	if w.Count == 0 {
		return 0
	}
	i := min(int(q*float64(w.Count)), w.Count-1)
	return time.Duration(w.latencies[i]) * time.Microsecond
}

// maxReasons bounds Result.Reasons.
const maxReasons = 5

func (r *Result) fail(reason string) {
	if r.Failed++; len(r.Reasons) < maxReasons {
		r.Reasons = append(r.Reasons, reason)
	}
}
