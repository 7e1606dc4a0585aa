package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// replica is one process of the service, at a port of its own, behind proxies of its own.
type replica struct {
	index  int
	name   string
	binary string
	listen string
	env    []string
	log    string // file
	links  map[string]*link

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	ends []string // ends that nobody asked for
	want bool     // that it runs
}

// Names of the links, beside the brokers' names.
const (
	linkDatabase   = "database"
	linkNameserver = "name server"
)

func (r *replica) url() string { return "http://" + r.listen }

// startLimit bounds the time from the start of a process until it serves. The process itself waits 10 s for brokers
// that are out of reach.
const startLimit = 60 * time.Second

// start runs the process and returns when it serves, even if it cannot reach all servers. Extra variables have the form
// NAME=value.
func (r *replica) start(ctx context.Context, extra ...string) error {
	if err := r.launch(extra); err != nil {
		return fmt.Errorf("starting %s: %w", r.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := r.serves(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", r.name, err)
		case <-r.ended():
			if len(extra) > 0 { // it reached its failpoint already
				return nil
			}
			return fmt.Errorf("%s ended at its start, see %s", r.name, r.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *replica) launch(extra []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done != nil {
		select {
		case <-r.done:
		default:
			return errors.New("it runs already")
		}
	}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- started at %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), strings.Join(extra, " "))
	// Lower priority than the servers, because on a busy machine the servers have to come back while the load goes on.
	cmd := exec.CommandContext(context.Background(), "nice", "-n", "8", r.binary, "serve")
	cmd.Env = append(append(os.Environ(), r.env...), extra...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = endsWithUs()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd, r.done, r.want = cmd, make(chan struct{}), len(extra) == 0
	go r.reap(cmd, r.done)
	return nil
}

// reap notes an unexpected end: a panic, a data race, a service that gives up.
func (r *replica) reap(cmd *exec.Cmd, done chan struct{}) {
	_ = cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want {
		r.ends = append(r.ends, fmt.Sprintf("%s ended by itself at %s: %s (see %s)", r.name, time.Now().UTC().Format(time.RFC3339), cmd.ProcessState, r.log))
	}
	close(done)
}

// unasked returns and forgets the unexpected ends.
func (r *replica) unasked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.ends
	r.ends = nil
	return ends
}

func (r *replica) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url()+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz: %d", response.StatusCode)
	}
	return nil
}

func (r *replica) ended() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// signal sends a signal. With last, the process is expected to end.
func (r *replica) signal(s syscall.Signal, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	if last {
		r.want = false
	}
	_ = r.cmd.Process.Signal(s) // a process that is gone needs none
}

func (r *replica) kill() {
	r.signal(syscall.SIGKILL, true)
	if done := r.ended(); done != nil {
		<-done
	}
}

// stopLimit is longer than the slowest request in flight.
const stopLimit = 60 * time.Second

// stop ends the process as an operator does.
func (r *replica) stop() error {
	r.signal(syscall.SIGTERM, true)
	select {
	case <-r.ended():
		if !r.cmd.ProcessState.Success() {
			return fmt.Errorf("%s ended with %s on SIGTERM, see %s", r.name, r.cmd.ProcessState, r.log)
		}
		return nil
	case <-time.After(stopLimit):
		r.kill()
		return fmt.Errorf("%s did not end on SIGTERM within %s", r.name, stopLimit)
	}
}

// freePort returns a port below the range from which systems take the local ports of outgoing connections, so that no
// passing connection holds it while a replica restarts.
func freePort(ctx context.Context) (string, error) {
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))
		if l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no free port")
}
