package verify

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets whose width is at most 1/16 of their values. It is safe for concurrent use.
type histogram struct {
	buckets [64 * 16]atomic.Uint32
	longest atomic.Int64
}

// bucketOf numbers microseconds: the position of the highest bit, and the four bits after it.
func bucketOf(us uint64) int {
	if us < 16 {
		return int(us)
	}
	top := bits.Len64(us) - 5
	return (top+1)*16 + int(us>>top&15)
}

// upperEnd is the first number of the next bucket.
func upperEnd(bucket int) uint64 {
	if bucket < 16 {
		return uint64(bucket) + 1
	}
	top := bucket/16 - 1
	return uint64(16+bucket%16+1) << top
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(max(d.Microseconds(), 0)))].Add(1)
	for {
		longest := h.longest.Load()
		if int64(d) <= longest || h.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// quantiles returns, for each of the parts (0 to 1, ascending), an upper bound of that part of the durations.
func (h *histogram) quantiles(parts ...float64) []time.Duration {
	total := uint64(0)
	for i := range h.buckets {
		total += uint64(h.buckets[i].Load())
	}
	found, sum, bucket := make([]time.Duration, len(parts)), uint64(0), -1
	for i, part := range parts {
		for want := uint64(part*float64(total)) + 1; sum < min(want, total); {
			bucket++
			sum += uint64(h.buckets[bucket].Load())
		}
		if bucket >= 0 {
			found[i] = min(time.Duration(upperEnd(bucket))*time.Microsecond, time.Duration(h.longest.Load()))
		}
	}
	return found
}
