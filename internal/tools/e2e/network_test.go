package e2e

import (
	"bytes"
	bigendian "encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/txsvc/txsvc/internal/tools/proxy"
)

// network is a proxy in front of one server that holds up and loses what passes. As proxies do, it acknowledges what it has
// not passed on, and passes it on also when the sender has gone meanwhile.
type network struct {
	*proxy.Proxy[*wire]
	reply func(frame []byte) []byte // makes another one of each reply frame; nil copies bytes

	mu      sync.Mutex
	changed sync.Cond
	held    bool // nothing passes, until it is false again
	deaf    bool // replies are lost
}

func newNetwork(t testing.TB, target string, reply func([]byte) []byte) *network {
	t.Helper()
	n := &network{reply: reply}
	n.changed.L = &n.mu
	var err error
	n.Proxy, err = proxy.New(t.Context(), target, proxy.Hooks[*wire]{
		Open: func(client, server net.Conn) *wire { return &wire{network: n, client: client, server: server} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.set(false, false)
		n.Close()
	})
	return n
}

func (n *network) set(held, deaf bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held, n.deaf = held, deaf
	n.changed.Broadcast()
}

// wire is one connection through a network.
type wire struct {
	network        *network
	client, server net.Conn
}

// Carry passes on what both sides say.
func (w *wire) Carry() {
	var wg sync.WaitGroup
	wg.Go(func() { w.network.forward(w.client, w.server, readBytes, false) })
	wg.Go(func() { w.network.forward(w.server, w.client, w.network.readReply, true) })
	wg.Wait()
}

// Cut breaks the connection; what it holds is lost.
func (w *wire) Cut() {
	_ = w.client.Close()
	_ = w.server.Close()
}

// forward passes on what from says until it ends, and then ends the other side. Of what is held, only the next piece is in
// its hands; the rest is in the kernel's buffers.
func (n *network) forward(from, to net.Conn, read func(io.Reader) ([]byte, error), replies bool) {
	defer to.Close()
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
	other := broker.Addr()
	if len(other) != len(addr) {
		e.t.Fatalf("addresses %s and %s have different lengths, frames would have too", addr, other)
	}
	names := newNetwork(e.t, e.nameservers[0], func(frame []byte) []byte {
		return bytes.ReplaceAll(frame, []byte(addr), []byte(other))
	})
	return broker, "TXSVC_NAMESERVERS=" + names.Addr()
}
