package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopLimit bounds an orderly stop.
const stopLimit = 30 * time.Second

// spec has a [Process]'s program, and the signals that end it.
type spec struct {
	name      string // for logs and errors
	args      []string
	dir       string
	env       []string
	owner     *owner // nil: the same user
	log       string // file of stdout and stderr
	orderly   syscall.Signal
	immediate syscall.Signal
	tree      bool // pause and kill its child processes too

	timerSlack time.Duration // see Options.TimerSlack

	prepare func() error // before each launch; nil is nothing
	// ready returns nil once the process serves. After an error it is called again until the process or the start's
	// context has ended.
	ready func(ctx context.Context) error
	// settled reports that an orderly stop has nothing left to do that is worth waiting for.
	settled func() bool
}

// Process is one child of the stack. Tests end, kill, pause and start it again;
// data and ports stay the same. Its methods may be called concurrently.
type Process struct {
	spec   spec
	lock   *os.File // locked by the guard as long as the child may live
	logger *slog.Logger

	mu  sync.Mutex
	run *running // nil before the first start
}

// running is one life of a process.
type running struct {
	cmd     *exec.Cmd
	guard   *guard
	logFrom int64 // where this life begins in the log file
	watched bool  // it served, and nobody has asked for its end, so its end is logged; guarded by Process.mu
	done    chan struct{}
	state   *os.ProcessState // valid after done
}

func (s *Stack) newProcess(sp spec) *Process {
	return &Process{spec: sp, lock: s.dir.children, logger: s.opts.Logger}
}

// Start runs the process and returns when it is ready. After an error it is stopped.
func (p *Process) Start(ctx context.Context) error {
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.spec.name, err)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		p.Kill()
		return fmt.Errorf("starting %s: %w", p.spec.name, err)
	}
	return nil
}

func (p *Process) heal(ctx context.Context) error {
	r := p.current()
	if r == nil {
		return p.Start(ctx)
	}
	p.resume(r)
	if err := p.awaitReady(ctx, r); err != nil {
		return fmt.Errorf("healing %s: %w", p.spec.name, err)
	}
	return nil
}

func (p *Process) launch() (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.over() {
		return nil, errors.New("it runs already")
	}
	if p.spec.prepare != nil {
		if err := p.spec.prepare(); err != nil {
			return nil, err
		}
	}
	r, err := launch(p.spec, p.lock)
	if err != nil {
		return nil, err
	}
	p.run = r
	go p.reap(r)
	return r, nil
}

// reap waits for the end of the child; only then may its guard go.
func (p *Process) reap(r *running) {
	_ = r.cmd.Wait() // ProcessState has the outcome
	r.guard.dismiss()
	p.mu.Lock()
	unexpected := r.watched
	p.mu.Unlock()
	r.state = r.cmd.ProcessState
	if unexpected {
		p.logger.Error("a process of the stack has ended by itself",
			"process", p.spec.name, "state", r.state.String(), "log", p.spec.log)
	}
	close(r.done)
}

func (r *running) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (p *Process) awaitReady(ctx context.Context, r *running) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.tryReady(ctx, r)
		if err == nil {
			p.watch(r)
			return nil
		}
		select {
		case <-r.done:
			return p.endedEarly(r)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (p *Process) tryReady(ctx context.Context, r *running) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := p.spec.ready(ctx); err != nil {
		return err
	}
	if r.over() { // another process may have answered at its port
		return errors.New("it has ended")
	}
	return nil
}

func (p *Process) watch(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.watched = true
}

// PID returns the process id, or 0 when the process does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.over() {
		return 0
	}
	return p.run.cmd.Process.Pid
}

// Done returns a channel that is closed when the present life of the process has ended. It is nil before the first
// start.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return nil
	}
	return p.run.done
}

// Stop ends the process in its orderly way and waits. When ctx ends first, or after 30 s, Stop kills it and returns an
// error. Stopping a stopped process is no error.
func (p *Process) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	return p.end(ctx, p.spec.orderly)
}

// StopImmediate ends the process in its immediate way: PostgreSQL drops its sessions without a checkpoint and recovers
// at the next start. A process without such a way is killed.
func (p *Process) StopImmediate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	return p.end(ctx, p.spec.immediate)
}

func (p *Process) end(ctx context.Context, sig syscall.Signal) error {
	r := p.announceEnd()
	if r == nil {
		return nil
	}
	p.signal(r, sig)
	p.resume(r)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("%s did not stop in time and was killed: %w", p.spec.name, context.Cause(ctx))
		case <-tick.C:
			if p.spec.settled != nil && p.spec.settled() {
				p.Kill()
				return nil
			}
		}
	}
}

// Kill ends the process by SIGKILL, PostgreSQL with all its sessions, and waits. It does nothing to a stopped process.
func (p *Process) Kill() {
	r := p.announceEnd()
	if r == nil {
		return
	}
	children := p.pause(r)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.signal(r, syscall.SIGKILL)
	<-r.done
	awaitGone(children)
}

// awaitGone waits for killed processes that are no children of this one, because PostgreSQL refuses to start while a
// process of an earlier life still has its shared memory.
func awaitGone(pids []int) {
	deadline := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for lives(pid) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// announceEnd returns the present life, or nil, and notes that its end is wanted.
func (p *Process) announceEnd() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.over() {
		return nil
	}
	p.run.watched = false
	return p.run
}

// Pause stops the process by SIGSTOP, PostgreSQL with all its sessions. Its connections stay open, and it answers
// nothing.
func (p *Process) Pause() {
	if r := p.current(); r != nil {
		p.pause(r)
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	if r := p.current(); r != nil {
		p.resume(r)
	}
}

func (p *Process) current() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.over() {
		return nil
	}
	return p.run
}

// pause stops the process and returns its paused children. The parent stops first, so that it starts no more of them.
func (p *Process) pause(r *running) []int {
	p.signal(r, syscall.SIGSTOP)
	if !p.spec.tree {
		return nil
	}
	pids := childrenOf(r.cmd.Process.Pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return pids
}

func (p *Process) resume(r *running) {
	if p.spec.tree {
		for _, pid := range childrenOf(r.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	p.signal(r, syscall.SIGCONT)
}

// signal goes through os.Process, which never signals a reaped process id.
func (p *Process) signal(r *running, sig syscall.Signal) {
	if err := r.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.logger.Error("signalling a process of the stack",
			"process", p.spec.name, "signal", sig.String(), "error", err)
	}
}
