// Package pause lets a goroutine pause without outliving its context.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d or until ctx ends, and returns whether ctx goes on.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// About returns a random duration between a half and one and a half of d, which must be positive: those who try again after
// the same failure should not all do so at the same moment.
func About(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Wake ends the pause of a goroutine that reads from a channel of capacity one. It never blocks, because a wake-up that is
// already there is enough.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
