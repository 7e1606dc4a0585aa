package verify

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// firstPause and longestPause bound how soon something that failed is tried again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// retry calls try until it succeeds, ctx ends or the limit has passed; the error is then the last that try had in time:
// what goes wrong when time is over says nothing.
func retry(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !pause.For(ctx, wait) {
			return last
		}
	}
}
