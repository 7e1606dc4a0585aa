package rows

import "time"

// Durations on which neither safety nor the time of a request depends; the others are in txn.Timing.
const (
	// markEvery is how long a delivered mark waits for others.
	markEvery = 10 * time.Millisecond
	markRetry = 500 * time.Millisecond
	// markFinish bounds the last write of marks when the process stops.
	markFinish = 5 * time.Second

	// firstLook is the pause after the first look at what is pending before a row; it grows to lastLook.
	firstLook = 2 * time.Millisecond
	lastLook  = 20 * time.Millisecond
)
