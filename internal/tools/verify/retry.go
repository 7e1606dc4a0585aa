package verify

import (
	"context"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// firstPause and longestPause bound the pause before the next try.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// retry calls try until it succeeds, ctx ends or the limit has passed. Then it returns the last error that try returned
// in time, because an error after the limit says nothing about the cause.
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
