package txn

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxLine is how many requests may wait for one ordered shard key in a process: at some milliseconds each they are
// through before their clients give up.
const maxLine = 64

// lineKey names what is in order: messages of one topic and shard key.
type lineKey struct{ topic, shardKey string }

// lines lets one attempt of each key through at a time, first come first served, so that a key that is stuck uses one
// connection and one half message, whatever waits behind it. The zero value is ready.
type lines struct {
	mu sync.Mutex
	by map[lineKey][]chan struct{} // those that wait; an entry, if empty, is held
}

// enter returns when it is the caller's turn, who then has to leave. It waits no longer than the timeout, and not behind
// too many.
func (l *lines) enter(ctx context.Context, key lineKey, timeout time.Duration) error {
	turn, err := l.join(key)
	if err != nil || turn == nil {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-timer.C:
		err = &Error{
			Code: CodeOverloaded, RetryAfter: retryAfter, Cause: ctx.Err(),
			Detail: "an earlier transaction of this topic and shard key takes longer than the kind's timeout; nothing was changed",
		}
	case <-ctx.Done():
		err = Errorf(CodeConflict, "the request was cancelled while it waited for earlier ones of its shard key; nothing was changed")
	}
	if l.quit(key, turn) {
		return err
	}
	return nil // its turn came at the same moment
}

// join takes the key, or a place behind those that wait for it.
func (l *lines) join(key lineKey) (turn chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, held := l.by[key]
	switch {
	case len(waiting) >= maxLine:
		return nil, &Error{
			Code: CodeOverloaded, TooMany: true, RetryAfter: time.Second,
			Detail: "too many transactions wait for earlier ones of this topic and shard key; nothing was changed",
		}
	case held:
		turn = make(chan struct{})
		l.by[key] = append(waiting, turn)
		return turn, nil
	case l.by == nil:
		l.by = make(map[lineKey][]chan struct{})
	}
	l.by[key] = nil
	return nil, nil
}

// quit gives a place up, unless its turn has come.
func (l *lines) quit(key lineKey, turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.by[key], turn)
	if i < 0 {
		return false
	}
	l.by[key] = slices.Delete(l.by[key], i, i+1)
	return true
}

// leave lets the next one through.
func (l *lines) leave(key lineKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.by[key]
	if len(waiting) == 0 {
		delete(l.by, key)
		return
	}
	close(waiting[0])
	l.by[key] = waiting[1:]
}
