package postgres

import "time"

// Durations on which neither safety nor the time of a request depends; the others are in txn.Timing.
const (
	// listenCheck is how long a silent connection is trusted.
	listenCheck = 30 * time.Second
	listenRetry = time.Second
)
