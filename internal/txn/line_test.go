package txn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func wantCode(t *testing.T, err error, code Code, tooMany bool) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != code || e.TooMany != tooMany {
		t.Errorf("got %v, want %s, of one key: %t", err, code, tooMany)
	}
}

// One at a time works on a key, first come first served; others keys are not concerned.
func TestLinesLetOneThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		key, other := lineKey{"t", "a"}, lineKey{"t", "b"}
		if err := l.enter(t.Context(), key, time.Second); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := l.enter(t.Context(), key, time.Minute); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				l.leave(key)
			}()
			synctest.Wait()
		}
		if err := l.enter(t.Context(), other, time.Second); err != nil {
			t.Errorf("another key: %v", err)
		}
		if len(order) > 0 {
			t.Errorf("%v went through beside the first", order)
		}
		l.leave(key)
		synctest.Wait()
		for i, n := range order {
			if i != n {
				t.Errorf("got %v, want them as they came", order)
				break
			}
		}
		l.leave(other)
		if len(order) != 5 || len(l.by) > 0 {
			t.Errorf("%d went through, and %d lines are left", len(order), len(l.by))
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		key := lineKey{"t", "a"}
		if err := l.enter(t.Context(), key, time.Second); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		errs := make(chan error, maxLine)
		for i := range maxLine {
			ctx := t.Context()
			if i == 0 {
				ctx = gone
			}
			go func() { errs <- l.enter(ctx, key, time.Second) }()
		}
		synctest.Wait()
		wantCode(t, l.enter(t.Context(), key, time.Second), CodeOverloaded, true)
		leave()
		wantCode(t, <-errs, CodeConflict, false)
		begin := time.Now()
		for range maxLine - 1 {
			wantCode(t, <-errs, CodeOverloaded, false)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("they waited %s, want the timeout of a second", took)
		}
		l.leave(key)
		if len(l.by) > 0 {
			t.Errorf("%d lines are left", len(l.by))
		}
		if err := l.enter(t.Context(), key, time.Second); err != nil {
			t.Errorf("after all have gone: %v", err)
		}
	})
}
