// Package groups runs the work on groups of rows. A group is what one topic has on one broker, or the lines of one topic.
// Runner works on each group alone, and Gate knows on which of them work makes sense now.
package groups

import (
	"context"
	"sync"
)

// Runner works on many groups at once, and on each one step after the other, so that a group that is held up holds up no
// other. It is safe for concurrent use.
type Runner[Name comparable] struct {
	isOpen func(Name) bool
	step   func(context.Context, Name) bool
	woken  chan struct{}

	mu      sync.Mutex
	groups  map[Name]*group // those that are due or worked on
	working sync.WaitGroup
}

type group struct{ due, running bool }

// NewRunner returns a Runner that calls step for each group that is due, and again for as long as step returns true. It
// begins only with groups for which isOpen returns true.
func NewRunner[Name comparable](isOpen func(Name) bool, step func(context.Context, Name) (more bool)) *Runner[Name] {
	return &Runner[Name]{isOpen: isOpen, step: step, woken: make(chan struct{}, 1), groups: make(map[Name]*group)}
}

// Wake makes a group due. It returns at once.
func (r *Runner[Name]) Wake(name Name) {
	r.mu.Lock()
	g := r.groups[name]
	if g == nil {
		g = &group{}
		r.groups[name] = g
	}
	g.due = true
	r.mu.Unlock()
	r.signal()
}

func (r *Runner[Name]) signal() {
	select {
	case r.woken <- struct{}{}:
	default: // it is signalled already
	}
}

// Run works until ctx is done, and returns when the steps that are under way have returned. A group that is due and not open
// is looked at again when any group is woken.
func (r *Runner[Name]) Run(ctx context.Context) {
	defer r.working.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
			r.start(ctx)
		}
	}
}

func (r *Runner[Name]) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, g := range r.groups {
		if g.due && !g.running && r.isOpen(name) {
			g.running = true
			r.working.Go(func() { r.work(ctx, name, g) })
		}
	}
}

func (r *Runner[Name]) work(ctx context.Context, name Name, g *group) {
	for more := true; more && ctx.Err() == nil; {
		r.mu.Lock()
		g.due = false // before the step, which sees what is there now
		r.mu.Unlock()
		more = r.step(ctx, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g.running = false
	if g.due {
		r.signal()
	} else {
		delete(r.groups, name)
	}
}

// Idle says that no group is worked on.
func (r *Runner[Name]) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		if g.running {
			return false
		}
	}
	return true
}
