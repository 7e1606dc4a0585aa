package world

import (
	"sync/atomic"
	"time"
)

// Life is a process that may be killed, or stopped for a while, between any two things that it does with others: code
// between them takes no time in the model. It is safe for concurrent use.
type Life struct {
	Name  string
	world *World
	dead  chan struct{}

	isDead  atomic.Bool
	stopped atomic.Int64 // until then, in nanoseconds of Unix time
}

// NewLife returns a process that lives.
func NewLife(w *World, name string) *Life {
	return &Life{Name: name, world: w, dead: make(chan struct{})}
}

// Kill ends the process. What it has sent goes on.
func (l *Life) Kill() {
	l.isDead.Store(true)
	close(l.dead)
}

// Dead is closed when the process is killed.
func (l *Life) Dead() <-chan struct{} { return l.dead }

// IsDead says that the process was killed.
func (l *Life) IsDead() bool { return l.isDead.Load() }

// Stop keeps the process from doing anything for so long, as SIGSTOP does.
func (l *Life) Stop(d time.Duration) {
	l.stopped.Store(time.Now().Add(d).UnixNano())
}

// Pass is where a process is about to do something, or to learn of something: it waits while it is stopped. A killed process
// never goes on; its goroutines return, with false, when the world has ended. What names who waits: when the process goes on,
// they do so one after the other.
func (l *Life) Pass(what string) bool {
	for {
		if l.IsDead() {
			<-l.world.over
			return false
		}
		until := l.stopped.Load()
		if until == 0 {
			return true
		}
		wait := time.Until(time.Unix(0, until))
		if wait <= 0 {
			return true
		}
		select {
		case <-time.After(wait + l.world.Roll(l.Name, "goes on", what).Within(short)):
		case <-l.dead:
		}
	}
}
