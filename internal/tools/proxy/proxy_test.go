package proxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a connection on which nothing is lost.
type plain struct{ client, server net.Conn }

func (p *plain) Carry() {
	var wg sync.WaitGroup
	wg.Go(func() { defer p.Cut(); _, _ = io.Copy(p.server, p.client) })
	wg.Go(func() { defer p.Cut(); _, _ = io.Copy(p.client, p.server) })
	wg.Wait()
}

func (p *plain) Cut() {
	_ = p.client.Close()
	_ = p.server.Close()
}

func open(client, server net.Conn) *plain { return &plain{client, server} }

// says is a server that says its name to all who connect.
func says(t *testing.T, name string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, name)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// read connects, and returns what the server says, or "" when the connection ends before.
func read(t *testing.T, addr string, length int) (string, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	said := make([]byte, length)
	n, err := io.ReadFull(c, said)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatal("neither an answer nor an end within 30 s")
	}
	return string(said[:n]), c
}

func TestProxy(t *testing.T) {
	first, second := says(t, "first"), says(t, "other")
	var refuses atomic.Bool
	p, err := New(t.Context(), first, Hooks[*plain]{Open: open, Admit: func() bool { return !refuses.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	said, before := read(t, p.Addr(), 5)
	if said != "first" {
		t.Errorf("got %q, want the first server", said)
	}
	p.Retarget(second)
	if said, _ := read(t, p.Addr(), 5); said != "other" {
		t.Errorf("got %q, want the other server", said)
	}
	refuses.Store(true)
	if said, _ := read(t, p.Addr(), 5); said != "" {
		t.Errorf("got %q over a refused connection", said)
	}
	p.Cut()
	if n, err := before.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a connection that was cut", n)
	}
}

// A connection that is accepted before all are cut, and opened after that, is cut as well.
func TestCutWhileAConnectionIsMade(t *testing.T) {
	var p *Proxy[*plain]
	ready := make(chan struct{})
	p, err := New(t.Context(), says(t, "first"), Hooks[*plain]{Open: func(client, server net.Conn) *plain {
		<-ready
		p.Cut()
		return open(client, server)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	close(ready)
	if said, _ := read(t, p.Addr(), 5); said != "" {
		t.Errorf("got %q over a connection that was cut", said)
	}
}

// A client whose server cannot be reached is dropped.
func TestServerIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p, err := New(t.Context(), l.Addr().String(), Hooks[*plain]{Open: open})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if said, _ := read(t, p.Addr(), 1); said != "" {
		t.Errorf("got %q without a server", said)
	}
}
