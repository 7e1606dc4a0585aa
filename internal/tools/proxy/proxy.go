// Package proxy accepts connections in place of a server, and dials that server for each of them. The tests that put a proxy
// between two processes say what becomes of the bytes. It imports nothing of this module.
package proxy

import (
	"context"
	"net"
	"sync"
)

// Link is one connection through a proxy. Its methods are called by several goroutines.
type Link interface {
	comparable
	// Carry passes on what both sides say. It returns when the connection is over.
	Carry()
	// Cut breaks the connection at once. It may be called more than once, and after the connection is over.
	Cut()
}

// Hooks are what a proxy does of its own. Open is required.
type Hooks[L Link] struct {
	Open   func(client, server net.Conn) L
	Admit  func() bool    // whether a new connection is taken; nil: each is
	Drop   func(net.Conn) // ends a connection that is not taken, or whose server cannot be reached; nil: closes it
	Dialer net.Dialer     // to the server
}

// Proxy stands between clients and one server.
type Proxy[L Link] struct {
	hooks    Hooks[L]
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	links  map[L]bool
	cuts   int // how often all connections were cut
}

// New returns a proxy in front of the target. It listens on a free port until Close.
func New[L Link](ctx context.Context, target string, hooks Hooks[L]) (*Proxy[L], error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if hooks.Admit == nil {
		hooks.Admit = func() bool { return true }
	}
	if hooks.Drop == nil {
		hooks.Drop = func(c net.Conn) { _ = c.Close() }
	}
	p := &Proxy[L]{hooks: hooks, listener: listener, target: target, links: make(map[L]bool)}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients take in place of the server's.
func (p *Proxy[L]) Addr() string { return p.listener.Addr().String() }

// Retarget makes new connections lead to another server.
func (p *Proxy[L]) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut breaks all connections, those included that are being made.
func (p *Proxy[L]) Cut() {
	p.mu.Lock()
	p.cuts++
	p.mu.Unlock()
	p.Each(func(link L) { link.Cut() })
}

// Each calls do for each connection that is not over.
func (p *Proxy[L]) Each(do func(L)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for link := range p.links {
		do(link)
	}
}

// Close takes no more connections, cuts those there are, and returns when nothing of them is left.
func (p *Proxy[L]) Close() {
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy[L]) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target, cuts := p.target, p.cuts
		p.mu.Unlock()
		if !p.hooks.Admit() {
			p.hooks.Drop(client)
			continue
		}
		p.wg.Go(func() { p.connect(client, target, cuts) })
	}
}

// connect carries the connection, unless all were cut since it was accepted.
func (p *Proxy[L]) connect(client net.Conn, target string, cuts int) {
	server, err := p.hooks.Dialer.DialContext(context.Background(), "tcp", target)
	if err != nil {
		p.hooks.Drop(client)
		return
	}
	link := p.hooks.Open(client, server)
	p.mu.Lock()
	cut := p.cuts != cuts
	if !cut {
		p.links[link] = true
	}
	p.mu.Unlock()
	if cut {
		link.Cut()
		return
	}
	link.Carry()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, link)
}
