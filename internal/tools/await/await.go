// Package await lets tests of all packages wait for what comes by itself: by asking for it, until it is there or the time
// is over.
package await

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The pause between two questions grows, so that many waiting tests leave the machine to those that work.
const shortest, longest = time.Millisecond, 100 * time.Millisecond

// Success asks until check returns nil. After the limit the test fails with what check returned last.
func Success(tb testing.TB, limit time.Duration, check func() error) {
	tb.Helper()
	if err := Poll(limit, check); err != nil {
		tb.Fatal(err)
	}
}

// True asks until holds is true. After the limit the test fails, and says what it waited for.
func True(tb testing.TB, limit time.Duration, what string, holds func() bool) {
	tb.Helper()
	Success(tb, limit, func() error {
		if !holds() {
			return errors.New("waiting for: " + what)
		}
		return nil
	})
}

// Poll is [Success] for callers that decide themselves what a failure means.
func Poll(limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s still: %w", limit, err)
		}
		time.Sleep(pause)
	}
}
