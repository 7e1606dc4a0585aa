package verify

import (
	"context"
	"time"
)

// firstPause and longestPause bound how soon something that failed is tried again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// retry calls try until it succeeds, ctx ends or the limit has passed; the error is then the last of try's.
func retry(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := try(ctx)
		if err == nil || !pause(ctx, wait) {
			return err
		}
	}
}

// pause waits, and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
