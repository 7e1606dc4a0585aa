package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			ends, d, want time.Duration
			goesOn        bool
		}{
			{time.Minute, time.Second, time.Second, true},
			{time.Second, time.Minute, time.Second, false},
			{0, 0, 0, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tc.ends)
			began := time.Now()
			goesOn := For(ctx, tc.d)
			cancel()
			if took := time.Since(began); goesOn != tc.goesOn || took != tc.want {
				t.Errorf("%s in a context of %s: got %t after %s, want %t after %s", tc.d, tc.ends, goesOn, took, tc.goesOn, tc.want)
			}
		}
	})
}

func TestAbout(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if got := About(time.Second); got < 500*time.Millisecond || got >= 1500*time.Millisecond {
			t.Fatalf("got %s, want between 0.5 s and 1.5 s", got)
		}
	}
}
