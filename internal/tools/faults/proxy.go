package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/tools/proxy"
)

// mode is what a link does to the bytes of one direction.
type mode int

const (
	pass   mode = iota
	slow        // bytes arrive slowBy later, in order
	vanish      // bytes are acknowledged and never arrive; nor do later ones of the same connection
)

const (
	slowBy = 2 * time.Second
	// stuck is the longest time for a write; bytes that take longer are lost. Otherwise the link would pass on late
	// what it has acknowledged.
	stuck = time.Second
)

// link is a proxy between one replica and one server.
type link struct {
	proxy   *proxy.Proxy[*pair]
	rewrite func(body []byte) []byte // of each reply frame of RocketMQ's protocol; nil: bytes are copied

	mu       sync.Mutex
	requests mode
	replies  mode
	refused  bool
}

func newLink(ctx context.Context, target string, rewrite func([]byte) []byte) (*link, error) {
	l := &link{rewrite: rewrite}
	var err error
	l.proxy, err = proxy.New(ctx, target, proxy.Hooks[*pair]{
		Open:   func(client, server net.Conn) *pair { return &pair{link: l, client: client, server: server} },
		Admit:  l.admits,
		Drop:   reset,
		Dialer: net.Dialer{Timeout: 3 * time.Second},
	})
	return l, err
}

func (l *link) addr() string { return l.proxy.Addr() }

func (l *link) close() {
	l.heal()
	l.proxy.Close()
}

// set changes the modes from now on, also for open connections.
func (l *link) set(requests, replies mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.replies = requests, replies
}

// retarget breaks all connections; new ones lead to another server.
func (l *link) retarget(target string) {
	l.proxy.Retarget(target)
	l.cut()
}

// refuse breaks all connections, and every new one at once.
func (l *link) refuse() {
	l.mu.Lock()
	l.refused = true
	l.mu.Unlock()
	l.cut()
}

// heal lets everything pass again. It breaks connections that have lost bytes.
func (l *link) heal() {
	l.mu.Lock()
	l.requests, l.replies, l.refused = pass, pass, false
	l.mu.Unlock()
	l.proxy.Each(func(c *pair) {
		if c.lossy() {
			c.Cut()
		}
	})
}

// cut breaks all connections. Bytes in them are lost.
func (l *link) cut() { l.proxy.Cut() }

func (l *link) admits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.refused
}

func (l *link) now(replies bool) mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	if replies {
		return l.replies
	}
	return l.requests
}

// pair is one connection through a link.
type pair struct {
	link           *link
	client, server net.Conn

	mu   sync.Mutex
	lost bool // bytes have vanished
	over bool
}

// Carry passes bytes on in both directions.
func (c *pair) Carry() {
	var wg sync.WaitGroup
	wg.Go(func() { c.forward(c.client, c.server, false) })
	wg.Go(func() { c.forward(c.server, c.client, true) })
	wg.Wait()
}

func (c *pair) lossy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Cut ends both sides, and drops unsent bytes.
func (c *pair) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	reset(c.client)
	reset(c.server)
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (c *pair) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// forward copies bytes in one direction. Where bytes vanish, the end of a connection vanishes too; the other side sees
// it when the network is whole again.
func (c *pair) forward(from, to net.Conn, replies bool) {
	out := &writer{pair: c, to: to}
	defer out.close()
	buffer := make([]byte, 32<<10)
	lost := false
	for {
		piece, err := c.read(from, buffer, replies)
		m := c.link.now(replies)
		if m == vanish && !lost && (len(piece) > 0 || err != nil) {
			lost = true
			c.mu.Lock()
			c.lost = true
			c.mu.Unlock()
		}
		if !lost && len(piece) > 0 && !out.write(piece, m == slow) {
			c.Cut()
			return
		}
		switch {
		case err == nil:
		case lost && !c.isOver(): // heal resets it
			return
		default:
			out.close()
			c.Cut()
			return
		}
	}
}

func (c *pair) read(from net.Conn, buffer []byte, replies bool) ([]byte, error) {
	if replies && c.link.rewrite != nil {
		return readFrame(from, c.link.rewrite)
	}
	n, err := from.Read(buffer)
	return buffer[:n], err
}

// maxFrame is larger than any frame.
const maxFrame = 64 << 20

// readFrame reads one frame (length, length of the header, header, body) and replaces its body.
func readFrame(r io.Reader, rewrite func([]byte) []byte) ([]byte, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return nil, err
	}
	size, header := binary.BigEndian.Uint32(lengths[:4]), binary.BigEndian.Uint32(lengths[4:])&0xffffff
	if size > maxFrame || size < 4 || header > size-4 {
		return nil, errors.New("not a frame")
	}
	rest := make([]byte, size-4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	body := rewrite(rest[header:])
	frame := binary.BigEndian.AppendUint32(nil, 4+header+uint32(len(body)))
	frame = append(append(frame, lengths[4:]...), rest[:header]...)
	return append(frame, body...), nil
}

// writer writes at once until the network is slow for the first time. From then on another goroutine writes, so that
// the bytes stay in order.
type writer struct {
	pair  *pair
	to    net.Conn
	queue chan delayed // nil: never slow until now
	last  time.Time    // when the last queued piece is due
	done  chan struct{}
}

type delayed struct {
	due   time.Time
	bytes []byte
}

// queued is the number of pieces in a slow connection. When it is full, nothing more is read.
const queued = 4096

func (w *writer) write(piece []byte, slowly bool) bool {
	if w.queue == nil && !slowly {
		return writeNow(w.to, piece)
	}
	if w.queue == nil {
		w.queue, w.done = make(chan delayed, queued), make(chan struct{})
		go w.writeDue()
	}
	d := delayed{due: time.Now(), bytes: append([]byte(nil), piece...)}
	if slowly {
		d.due = d.due.Add(slowBy)
	}
	if d.due.Before(w.last) { // it waits behind slow pieces
		d.due = w.last
	}
	w.last = d.due
	select {
	case w.queue <- d:
		return true
	case <-w.done:
		return false
	}
}

func (w *writer) writeDue() {
	defer close(w.done)
	for d := range w.queue {
		time.Sleep(time.Until(d.due))
		if w.pair.isOver() || time.Since(d.due) > stuck || !writeNow(w.to, d.bytes) {
			w.pair.Cut()
			return
		}
	}
}

// close returns when all queued pieces are written or dropped.
func (w *writer) close() {
	if w.queue != nil {
		close(w.queue)
		<-w.done
		w.queue = nil
	}
}

func writeNow(to net.Conn, piece []byte) bool {
	_ = to.SetWriteDeadline(time.Now().Add(stuck))
	_, err := to.Write(piece)
	return err == nil
}
