package leases

import "time"

const (
	// registerEvery is how often a process says that it is there; registerRetry applies when the database has not taken it.
	registerEvery = 10 * time.Minute
	registerRetry = time.Second
	// producersKnown is how long a process that is gone is known: brokers ask about its half messages for a shorter time.
	producersKnown = 30 * 24 * time.Hour
)
