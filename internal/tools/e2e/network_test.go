package e2e

import (
	"bytes"
	"context"
	bigendian "encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// network is a proxy in front of one server that holds up and loses what passes. As proxies do, it acknowledges what it has
// not passed on, and passes it on also when the sender has gone meanwhile.
type network struct {
	target   string
	listener net.Listener
	reply    func(frame []byte) []byte // makes another one of each reply frame; nil copies bytes
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	conns   map[net.Conn]bool // both sides
	held    bool              // nothing passes, until it is false again
	deaf    bool              // replies are lost
}

func newNetwork(t testing.TB, target string, reply func([]byte) []byte) *network {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{target: target, listener: l, reply: reply, conns: make(map[net.Conn]bool)}
	n.changed.L = &n.mu
	n.wg.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.set(false, false)
		n.cut()
		n.wg.Wait()
	})
	return n
}

func (n *network) set(held, deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held, n.deaf = held, deaf
	n.changed.Broadcast()
}

// cut breaks all connections; what they hold is lost.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", n.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		n.mu.Lock()
		n.conns[client], n.conns[server] = true, true
		n.mu.Unlock()
		n.wg.Go(func() { n.relay(client, server, readBytes, false) })
		n.wg.Go(func() { n.relay(server, client, n.readReply, true) })
	}
}

// relay passes on what from says until it ends, and then ends the other side. Of what is held, only the next piece is in
// its hands; the rest is in the kernel's buffers.
func (n *network) relay(from, to net.Conn, read func(io.Reader) ([]byte, error), replies bool) {
	defer func() {
		_ = to.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, to)
	}()
	for {
		piece, err := read(from)
		if len(piece) > 0 && n.passes(replies) {
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passes waits while the network is held, and says whether a piece is passed on at all.
func (n *network) passes(reply bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.held {
		n.changed.Wait()
	}
	return !reply || !n.deaf
}

func readBytes(r io.Reader) ([]byte, error) {
	piece := make([]byte, 64<<10)
	k, err := r.Read(piece)
	return piece[:k], err
}

// readReply reads a whole frame of RocketMQ's protocol where replies are changed.
func (n *network) readReply(r io.Reader) ([]byte, error) {
	if n.reply == nil {
		return readBytes(r)
	}
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	rest := make([]byte, bigendian.BigEndian.Uint32(frame))
	_, err := io.ReadFull(r, rest)
	return n.reply(append(frame, rest...)), err
}

// behindNetwork returns a network in front of the broker, and the variable that makes a service take that way: a name
// server that tells of the broker at the network's address.
func (e *env) behindNetwork() (broker *network, variable string) {
	e.t.Helper()
	route, err := e.mq.RefreshRoute(e.t.Context(), e.topic)
	if err != nil {
		e.t.Fatal(err)
	}
	addr := route.Queues[0].Addr
	broker = newNetwork(e.t, addr, nil)
	other := broker.listener.Addr().String()
	if len(other) != len(addr) {
		e.t.Fatalf("addresses %s and %s have different lengths, frames would have too", addr, other)
	}
	names := newNetwork(e.t, e.nameservers[0], func(frame []byte) []byte {
		return bytes.ReplaceAll(frame, []byte(addr), []byte(other))
	})
	return broker, "TXSVC_NAMESERVERS=" + names.listener.Addr().String()
}
