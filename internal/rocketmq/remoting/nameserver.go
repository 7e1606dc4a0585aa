package remoting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// retryDown is the time for which a name server that failed is not asked for a second opinion.
const retryDown = 10 * time.Second

// nameservers asks name servers one after the other until one answers, beginning with the one that answered last,
// because all of them should know the same. It dials when needed, and reuses connections.
type nameservers struct {
	addrs   []string
	opts    *connOptions
	timeout time.Duration // for one of them

	mu        sync.Mutex
	conns     map[string]*conn
	dialing   map[string]chan struct{}
	preferred int
	down      map[int]time.Time // when one could not be reached last
	lastOK    time.Time
	lastErr   error
	closed    bool
}

func newNameservers(addrs []string, opts *connOptions, timeout time.Duration) *nameservers {
	return &nameservers{
		addrs: addrs, opts: opts, timeout: timeout,
		conns: make(map[string]*conn), dialing: make(map[string]chan struct{}), down: make(map[int]time.Time),
	}
}

// ask sends a request that may be repeated. After an answer other than success it also asks the next name server,
// because one that has just started knows no topics yet. Such an answer is the result only if no name server succeeds.
// For this second opinion, ask does not wait for a name server that was out of reach just now.
func (n *nameservers) ask(ctx context.Context, req *request) (Frame, error) {
	var refused, failed error
	start := n.first()
	for i := range n.addrs {
		at := (start + i) % len(n.addrs)
		if refused != nil && n.wasDown(at) {
			continue
		}
		if failed != nil && ctx.Err() != nil {
			break // the others have not failed, so the next question begins with them
		}
		reply, err := n.askOne(ctx, n.addrs[at], req)
		if err != nil {
			failed = err
			n.failed(at)
			continue
		}
		n.answered(at)
		if err := answer(req.op, n.addrs[at], &reply); err != nil {
			refused = err
			continue
		}
		return reply, nil
	}
	if refused != nil {
		return Frame{}, refused
	}
	n.unreachable(failed)
	return Frame{}, fmt.Errorf("no name server answered: %w", failed)
}

// askAll sends a request to every name server.
func (n *nameservers) askAll(ctx context.Context, req *request) error {
	var failed error
	for _, addr := range n.addrs {
		reply, err := n.askOne(ctx, addr, req)
		if err == nil {
			err = answer(req.op, addr, &reply)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func (n *nameservers) askOne(ctx context.Context, addr string, req *request) (Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	c, err := n.conn(ctx, addr)
	if err != nil {
		return Frame{}, notSent(req.op, addr, err)
	}
	return c.call(ctx, req, time.Time{})
}

// conn returns the live connection to addr. If there is none, one caller dials, and the others wait for it.
func (n *nameservers) conn(ctx context.Context, addr string) (*conn, error) {
	for {
		n.mu.Lock()
		c, dialing := n.conns[addr], n.dialing[addr]
		switch {
		case n.closed:
			n.mu.Unlock()
			return nil, ErrClosed
		case c != nil && c.cause() == nil:
			n.mu.Unlock()
			return c, nil
		case dialing == nil:
			n.dialing[addr] = make(chan struct{})
			n.mu.Unlock()
			return n.dial(ctx, addr)
		}
		n.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (n *nameservers) dial(ctx context.Context, addr string) (*conn, error) {
	c, err := dial(ctx, "", addr, n.opts)
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.dialing[addr])
	delete(n.dialing, addr)
	if err != nil {
		return nil, err
	}
	if n.closed {
		go c.close()
		return nil, ErrClosed
	}
	n.conns[addr] = c
	return c, nil
}

func (n *nameservers) first() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.preferred
}

func (n *nameservers) answered(at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.preferred, n.lastOK, n.lastErr = at, time.Now(), nil
	delete(n.down, at)
}

// failed makes the next question begin behind the name server that failed, so that several dead ones do not use up the
// time of every attempt.
func (n *nameservers) failed(at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[at] = time.Now()
	if n.preferred == at {
		n.preferred = (at + 1) % len(n.addrs)
	}
}

func (n *nameservers) wasDown(at int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, down := n.down[at]
	return down && time.Since(since) < retryDown
}

func (n *nameservers) unreachable(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastErr = err
}

// close ends all connections.
func (n *nameservers) close() {
	n.mu.Lock()
	n.closed = true
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}
