package sessions

import "time"

// Durations on which neither safety nor the time of a request depends; the others are in txn.Timing.
const (
	// closeTimeout bounds the farewell to a server.
	closeTimeout = time.Second

	maxConnIdle       = 5 * time.Minute
	maxConnLife       = time.Hour
	maxConnLifeJitter = 10 * time.Minute

	// resetEvery bounds how often the idle sessions are closed: a kind whose own SQL makes its transactions read-only would
	// otherwise cause that with every request.
	resetEvery = 500 * time.Millisecond
	// refusalHolds is how long the refusal of a server that takes no writes is repeated without asking the server again.
	refusalHolds = 250 * time.Millisecond
)
