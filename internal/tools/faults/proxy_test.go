package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// server answers each line with the line, and records the lines.
type server struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	lines    []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{listener: l}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); s.wg.Wait() })
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		s.mu.Lock()
		s.lines = append(s.lines, lines.Text())
		s.mu.Unlock()
		fmt.Fprintln(conn, lines.Text())
	}
}

func (s *server) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, " ")
}

func through(t *testing.T) (*server, *link, func() net.Conn) {
	t.Helper()
	s := newServer(t)
	p, err := newLink(t.Context(), s.listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return s, p, func() net.Conn {
		conn, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// say sends a line and returns the answer, or "" when none comes in time.
func say(t *testing.T, conn net.Conn, line string, within time.Duration) string {
	t.Helper()
	fmt.Fprintln(conn, line)
	_ = conn.SetReadDeadline(time.Now().Add(within))
	answer, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer)
}

const moment = 100 * time.Millisecond

func TestProxyLosesReplies(t *testing.T) {
	t.Parallel()
	s, p, dial := through(t)
	conn := dial()
	if got := say(t, conn, "one", 5*time.Second); got != "one" {
		t.Fatalf("got %q, want one", got)
	}
	p.set(pass, vanish)
	if got := say(t, conn, "two", moment); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	await.True(t, 10*time.Second, "the request arrives", func() bool { return s.heard() == "one two" })
	p.heal()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := conn.Read(make([]byte, 10)); err == nil {
		t.Errorf("read %d bytes of a connection that has lost something, want it broken", n)
	}
	if got := say(t, dial(), "three", 5*time.Second); got != "three" {
		t.Errorf("got %q over a new connection, want three", got)
	}
}

// Bytes that vanish never arrive. The end of a connection does not arrive either, until the network is whole again.
func TestProxyLosesRequests(t *testing.T) {
	t.Parallel()
	s, p, dial := through(t)
	conn := dial()
	say(t, conn, "one", 5*time.Second)
	p.set(vanish, pass)
	if got := say(t, conn, "two", moment); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	conn.Close()
	p.set(pass, pass)
	await.True(t, 10*time.Second, "the end is read", func() bool { return pairsOf(p) == 1 })
	p.heal()
	await.True(t, 10*time.Second, "the connection is gone", func() bool { return pairsOf(p) == 0 })
	if got := s.heard(); got != "one" {
		t.Errorf("the server heard %q, want one", got)
	}
}

func pairsOf(l *link) (n int) {
	l.proxy.Each(func(*pair) { n++ })
	return n
}

func TestProxyIsSlowInOrder(t *testing.T) {
	t.Parallel()
	s, p, dial := through(t)
	conn := dial()
	say(t, conn, "one", 5*time.Second)
	p.set(slow, pass)
	begin := time.Now()
	say(t, conn, "two", moment)
	p.set(pass, pass)
	say(t, conn, "three", moment)
	await.True(t, 10*time.Second, "all arrives", func() bool { return s.heard() == "one two three" })
	if took := time.Since(begin); took < slowBy {
		t.Errorf("it arrived after %s, want at least %s", took, slowBy)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	_, p, dial := through(t)
	conn := dial()
	say(t, conn, "one", 5*time.Second)
	p.refuse()
	isBroken := func(name string, conn net.Conn) {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s connection: got %v, want it broken", name, err)
		}
	}
	isBroken("open", conn)
	if another, err := net.Dial("tcp", p.addr()); err == nil { // it may be broken before it is returned
		defer another.Close()
		isBroken("new", another)
	}
	p.heal()
	if got := say(t, dial(), "two", 5*time.Second); got != "two" {
		t.Errorf("got %q, want two", got)
	}
}

// When a server reads nothing, bytes to it are lost, and never arrive late.
func TestProxyHoldsNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := newLink(t.Context(), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deaf, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	for err == nil {
		_, err = conn.Write(make([]byte, 1<<20))
	}
	if strings.Contains(err.Error(), "timeout") {
		t.Error("the connection stands for 30 s, want it broken after one")
	}
}

func TestFramesAreRewritten(t *testing.T) {
	t.Parallel()
	frame := func(header, body string) string {
		return string([]byte{0, 0, 0, byte(4 + len(header) + len(body)), 1, 0, 0, byte(len(header))}) + header + body
	}
	in := strings.NewReader(frame("head", "at 10.0.0.1:5") + frame("h", ""))
	longer := func(body []byte) []byte {
		return []byte(strings.ReplaceAll(string(body), "10.0.0.1:5", "127.0.0.1:55555"))
	}
	for _, want := range []string{frame("head", "at 127.0.0.1:55555"), frame("h", "")} {
		got, err := readFrame(in, longer)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := readFrame(in, longer); err != io.EOF {
		t.Errorf("got %v at the end, want EOF", err)
	}
	if _, err := readFrame(strings.NewReader("GET / HTTP/1.1\r\n"), longer); err == nil {
		t.Error("got no error for what is no frame")
	}
}
