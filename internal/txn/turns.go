package txn

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxWaiting is how many requests may wait for one ordered shard key in a process: at some milliseconds each they are
// through before their clients give up.
const maxWaiting = 64

// turnKey is what requests take turns on: the topic and shard key of ordered kinds.
type turnKey struct{ topic, shardKey string }

// turns lets one request of each key work at a time, first come first served, so that a key that is stuck uses one
// connection and one half message, however many wait for it. The zero value is ready.
type turns struct {
	mu sync.Mutex
	by map[turnKey][]chan struct{} // those that wait; an entry, if empty, is held
}

// take returns when it is the caller's turn, who then has to pass it on. It waits no longer than the timeout, and not behind
// too many.
func (t *turns) take(ctx context.Context, key turnKey, timeout time.Duration) error {
	turn, err := t.join(key)
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
			Code: CodeOverloaded, RetryAfter: RetryAfter, Cause: ctx.Err(),
			Detail: "an earlier transaction of this topic and shard key takes longer than the kind's timeout; nothing was changed",
		}
	case <-ctx.Done():
		err = Errorf(CodeConflict, "the request was cancelled while it waited for earlier ones of its shard key; nothing was changed")
	}
	if t.quit(key, turn) {
		return err
	}
	return nil // its turn came at the same moment
}

// join takes the turn and returns nil when nobody has it. Otherwise it returns a channel that is closed when the turn
// comes.
func (t *turns) join(key turnKey) (turn chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, held := t.by[key]
	switch {
	case len(waiting) >= maxWaiting:
		return nil, &Error{
			Code: CodeKeyOverloaded, RetryAfter: RetrySoon,
			Detail: "too many transactions wait for earlier ones of this topic and shard key; nothing was changed",
		}
	case held:
		turn = make(chan struct{})
		t.by[key] = append(waiting, turn)
		return turn, nil
	case t.by == nil:
		t.by = make(map[turnKey][]chan struct{})
	}
	t.by[key] = nil
	return nil, nil
}

// quit gives a place up, unless its turn has come.
func (t *turns) quit(key turnKey, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.by[key], turn)
	if i < 0 {
		return false
	}
	t.by[key] = slices.Delete(t.by[key], i, i+1)
	return true
}

// pass ends the caller's turn and lets the next one through.
func (t *turns) pass(key turnKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.by[key]
	if len(waiting) == 0 {
		delete(t.by, key)
		return
	}
	close(waiting[0])
	t.by[key] = waiting[1:]
}
