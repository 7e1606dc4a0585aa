package txn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func wantRefused(t *testing.T, err error, code Code) {
	t.Helper()
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// One at a time works on a key, first come first served; others keys are not concerned.
func TestTurnsLetOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l turns
		key, other := turnKey{"t", "a"}, turnKey{"t", "b"}
		if err := l.take(t.Context(), key, time.Second); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := l.take(t.Context(), key, time.Minute); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				l.pass(key)
			}()
			synctest.Wait()
		}
		if err := l.take(t.Context(), other, time.Second); err != nil {
			t.Errorf("another key: %v", err)
		}
		if len(order) > 0 {
			t.Errorf("%v went through beside the first", order)
		}
		l.pass(key)
		synctest.Wait()
		for i, n := range order {
			if i != n {
				t.Errorf("got %v, want them as they came", order)
				break
			}
		}
		l.pass(other)
		if len(order) != 5 || len(l.by) > 0 {
			t.Errorf("%d went through, and %d keys are left", len(order), len(l.by))
		}
	})
}

func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l turns
		key := turnKey{"t", "a"}
		if err := l.take(t.Context(), key, time.Second); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		errs := make(chan error, maxWaiting)
		for i := range maxWaiting {
			ctx := t.Context()
			if i == 0 {
				ctx = gone
			}
			go func() { errs <- l.take(ctx, key, time.Second) }()
		}
		synctest.Wait()
		wantRefused(t, l.take(t.Context(), key, time.Second), CodeKeyOverloaded)
		leave()
		wantRefused(t, <-errs, CodeConflict)
		begin := time.Now()
		for range maxWaiting - 1 {
			wantRefused(t, <-errs, CodeOverloaded)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("they waited %s, want the timeout of a second", took)
		}
		l.pass(key)
		if len(l.by) > 0 {
			t.Errorf("%d keys are left", len(l.by))
		}
		if err := l.take(t.Context(), key, time.Second); err != nil {
			t.Errorf("after all have gone: %v", err)
		}
	})
}
