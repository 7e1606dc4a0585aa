package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// peer is the other end of a connection, driven by the test. It can do things at a chosen moment that no broker can be
// made to do.
type peer struct {
	t      *testing.T
	socket *net.TCPConn
	in     *frameReader
}

// newPeer connects the two ends, with small buffers in the kernel.
func newPeer(t *testing.T, change func(*connOptions)) (*conn, *peer) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	opts := &connOptions{
		codec: CodecBinary, dialTimeout: 5 * time.Second, replyTimeout: 20 * time.Second, writeTimeout: 20 * time.Second,
		ackTimeout: 20 * time.Second, maxQueued: 64 << 20, onRequest: func(*conn, Frame) {}, counters: &counters{},
	}
	if change != nil {
		change(opts)
	}
	c, err := dial(t.Context(), "broker", listener.Addr().String(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	socket := accepted.(*net.TCPConn)
	if err := errors.Join(socket.SetReadBuffer(64<<10), c.socket.(*net.TCPConn).SetWriteBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	return c, &peer{t: t, socket: socket, in: newFrameReader(socket)}
}

// next reads a request and checks that it has that body.
func (p *peer) next(body string) Frame {
	p.t.Helper()
	frame, err := p.in.next()
	if err != nil {
		p.t.Fatalf("waiting for %.20q: %v", body, err)
	}
	if string(frame.Body) != body {
		p.t.Fatalf("got a body of %d bytes, %.20q, want %d, %.20q", len(frame.Body), frame.Body, len(body), body)
	}
	return frame
}

func (p *peer) reply(to Frame) {
	p.t.Helper()
	p.write(&request{code: CodeSuccess, flag: flagReply, body: to.Body}, to.Opaque)
}

func (p *peer) write(req *request, opaque int32) {
	p.t.Helper()
	w := fieldWriter{codec: CodecJSON}
	if err := appendFrame(&w, opaque, req); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.socket.Write(w.buf); err != nil {
		p.t.Fatal(err)
	}
}

// pending is a call in the background.
type pending chan error

func start(ctx context.Context, c *conn, body string, writeBefore time.Time) pending {
	result := make(pending, 1)
	go func() {
		reply, err := c.call(ctx, &request{op: "test", body: []byte(body)}, writeBefore)
		if err == nil && string(reply.Body) != body {
			err = fmt.Errorf("got the reply to another request, %.20q", reply.Body)
		}
		result <- err
	}()
	return result
}

func (p pending) want(t *testing.T, kinds ...error) {
	t.Helper()
	select {
	case err := <-p:
		if len(kinds) == 0 && err != nil {
			t.Errorf("got %v, want a reply", err)
		}
		for _, kind := range kinds {
			if !errors.Is(err, kind) {
				t.Errorf("got %v, want %v", err, kind)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the call does not return")
	}
}

func awaitQueued(t *testing.T, c *conn, n int) {
	t.Helper()
	await.Success(t, 30*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.queue.frames) != n {
			return fmt.Errorf("%d frames are queued, want %d", len(c.queue.frames), n)
		}
		return nil
	})
}

// block makes the writer wait for the socket, in the middle of a frame.
func block(t *testing.T, c *conn) (call pending, body string) {
	t.Helper()
	body = string(bytes.Repeat([]byte("big "), 1<<20))
	call = start(t.Context(), c, body, time.Time{})
	await.Success(t, 30*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.pending) == 0 || len(c.queue.frames) > 0 {
			return errors.New("the writer has not taken it")
		}
		return nil
	})
	return call, body
}

func TestRepliesFindTheirCalls(t *testing.T) {
	c, p := newPeer(t, nil)
	first := start(t.Context(), c, "first", time.Time{})
	a := p.next("first")
	second := start(t.Context(), c, "second", time.Time{})
	b := p.next("second")
	p.write(&request{flag: flagReply, body: []byte("nobody's")}, 4711)
	p.reply(b)
	second.want(t)
	p.reply(a)
	first.want(t)
}

func TestAbandonedCallLeavesTheConnectionAlone(t *testing.T) {
	c, p := newPeer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	call := start(ctx, c, "abandoned", time.Time{})
	frame := p.next("abandoned")
	cancel()
	call.want(t, ErrReplyMissing, context.Canceled)
	p.reply(frame)
	next := start(t.Context(), c, "next", time.Time{})
	p.reply(p.next("next"))
	next.want(t)
}

func TestReplyTimeout(t *testing.T) {
	c, p := newPeer(t, func(o *connOptions) { o.replyTimeout = 10 * time.Millisecond })
	for range 3 { // the timer is reused
		call := start(context.Background(), c, "slow", time.Time{})
		p.next("slow")
		call.want(t, ErrReplyMissing, context.DeadlineExceeded)
	}
}

func TestCallAbandonedInTheQueueIsNotSent(t *testing.T) {
	c, p := newPeer(t, nil)
	blocked, body := block(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	call := start(ctx, c, "abandoned", time.Time{})
	awaitQueued(t, c, 1)
	last := start(t.Context(), c, "last", time.Time{})
	awaitQueued(t, c, 2)
	cancel()
	call.want(t, ErrNotSent, context.Canceled)
	p.reply(p.next(body))
	p.reply(p.next("last"))
	blocked.want(t)
	last.want(t)
}

func TestCallWithEndedContextIsNotSent(t *testing.T) {
	c, p := newPeer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start(ctx, c, "never", time.Time{}).want(t, ErrNotSent, context.Canceled)
	next := start(t.Context(), c, "next", time.Time{})
	p.reply(p.next("next"))
	next.want(t)
}

func TestWriteBefore(t *testing.T) {
	c, p := newPeer(t, nil)
	start(t.Context(), c, "late", time.Now()).want(t, ErrNotSent, ErrWriteBefore)
	call := start(t.Context(), c, "early", time.Now().Add(time.Minute))
	p.reply(p.next("early"))
	call.want(t)
}

func TestWriteBeforePassesInTheQueue(t *testing.T) {
	c, p := newPeer(t, nil)
	blocked, body := block(t, c)
	late := start(t.Context(), c, "late", time.Now().Add(20*time.Millisecond))
	awaitQueued(t, c, 1)
	last := start(t.Context(), c, "last", time.Time{})
	awaitQueued(t, c, 2)
	<-time.After(20 * time.Millisecond) // the limit itself
	p.reply(p.next(body))
	late.want(t, ErrNotSent, ErrWriteBefore)
	p.reply(p.next("last"))
	blocked.want(t)
	last.want(t)
}

// A frame shares its batch with a large one that the socket takes slowly. So its time limit passes while the batch is
// being written.
func TestWriteBeforePassesWhileWriting(t *testing.T) {
	c, p := newPeer(t, nil)
	blocked, body := block(t, c)
	second := start(t.Context(), c, "2"+body, time.Time{})
	awaitQueued(t, c, 1)
	late := start(t.Context(), c, "late", time.Now().Add(500*time.Millisecond))
	awaitQueued(t, c, 2)
	last := start(t.Context(), c, "last", time.Time{})
	awaitQueued(t, c, 3)
	p.reply(p.next(body)) // from here on the writer has the other three
	late.want(t, ErrNotSent, ErrWriteBefore)
	p.reply(p.next("2" + body))
	p.reply(p.next("last"))
	blocked.want(t)
	second.want(t)
	last.want(t)
}

func TestWriteBeforePassesInsideTheFrame(t *testing.T) {
	c, _ := newPeer(t, nil)
	late := start(t.Context(), c, string(make([]byte, 4<<20)), time.Now().Add(time.Second))
	await.Success(t, 30*time.Second, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ca := c.pending[1]; ca == nil || !ca.taken {
			return errors.New("not being written")
		}
		return nil
	})
	queued := start(t.Context(), c, "queued", time.Time{})
	late.want(t, ErrReplyMissing, ErrWriteBefore)
	queued.want(t, ErrNotSent, ErrWriteBefore)
	<-c.broken
}

func TestSocketThatTakesNoBytesIsGivenUp(t *testing.T) {
	c, _ := newPeer(t, func(o *connOptions) { o.writeTimeout = 50 * time.Millisecond })
	blocked, _ := block(t, c)
	queued := start(t.Context(), c, "queued", time.Time{})
	blocked.want(t, ErrReplyMissing)
	queued.want(t, ErrNotSent)
	start(t.Context(), c, "afterwards", time.Time{}).want(t, ErrNotSent)
}

func TestBreakTellsWhatWasSent(t *testing.T) {
	c, p := newPeer(t, nil)
	sent := start(t.Context(), c, "sent", time.Time{})
	p.next("sent")
	if err := p.socket.Close(); err != nil {
		t.Fatal(err)
	}
	sent.want(t, ErrReplyMissing, io.EOF)
	start(t.Context(), c, "afterwards", time.Time{}).want(t, ErrNotSent, io.EOF)
}

func TestBreakThrowsUnsentBytesAway(t *testing.T) {
	c, p := newPeer(t, nil)
	blocked, _ := block(t, c)
	c.fail(errors.New("given up"))
	blocked.want(t, ErrReplyMissing)
	_, err := io.Copy(io.Discard, p.socket)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v, want a reset: what is left in the kernel would still be sent", err)
	}
}

func TestMalformedReplyBreaksTheConnection(t *testing.T) {
	c, p := newPeer(t, nil)
	call := start(t.Context(), c, "sent", time.Time{})
	p.next("sent")
	if _, err := p.socket.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	call.want(t, ErrReplyMissing, ErrFrame)
}

func TestQueueIsLimited(t *testing.T) {
	c, p := newPeer(t, func(o *connOptions) { o.maxQueued = 100 })
	blocked := start(t.Context(), c, string(make([]byte, 100)), time.Time{})
	p.reply(p.next(string(make([]byte, 100))))
	blocked.want(t)
	start(t.Context(), c, string(make([]byte, 101)), time.Time{}).want(t, ErrNotSent, ErrQueueFull)
}

func TestOneWay(t *testing.T) {
	c, p := newPeer(t, nil)
	if err := c.oneWay(&request{op: "test", body: []byte("one way")}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if frame := p.next("one way"); !frame.isOneWay() {
		t.Errorf("got flag %d, want one-way", frame.Flag)
	}
}

func TestUnknownRequestsAreRefused(t *testing.T) {
	client, err := New(Config{Nameservers: []string{"unused"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	_, p := newPeer(t, func(o *connOptions) { o.onRequest = client.onRequest })
	p.write(&request{code: 40, flag: flagOneWay}, 6)
	p.write(&request{code: codeCheckTransaction, flag: flagOneWay, body: []byte("no message")}, 7)
	p.write(&request{code: 307}, 8)
	if reply := p.next(""); reply.Code != CodeNotSupported || !reply.isReply() || reply.Opaque != 8 {
		t.Errorf("got %+v, want a refusal of 8", reply)
	}
}

// The bytes that go out are whole frames in order, however many bytes are written at a time and whichever frames are
// dropped. A frame of which one byte went out is written whole.
func TestBatchKeepsFramesWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b batch
		bodies := map[int32]string{}
		w := fieldWriter{codec: CodecBinary}
		for i := range int32(rapid.IntRange(1, 8).Draw(t, "frames")) {
			bodies[i] = string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "body"))
			f := queuedFrame{opaque: i, answered: true}
			if rapid.Bool().Draw(t, "limited") {
				f.writeBefore = time.Now()
			}
			if err := b.add(&w, &request{body: []byte(bodies[i])}, f); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		for len(b.frames) > 0 {
			n := rapid.IntRange(0, len(b.buf)).Draw(t, "written")
			out.Write(b.buf[:n])
			b.consume(n)
			drop := rapid.SliceOfN(rapid.Int32Range(0, 8), 0, 2).Draw(t, "dropped")
			first := !b.partial
			b.filter(func(f *queuedFrame) bool {
				gone := first && len(drop) > 0 && (f.opaque == drop[0] || f.opaque == drop[len(drop)-1])
				first = true
				if gone {
					delete(bodies, f.opaque)
				}
				return !gone
			})
		}
		if b.limited != 0 || len(b.buf) != 0 {
			t.Errorf("an empty batch has %d limited frames, %d bytes", b.limited, len(b.buf))
		}
		checkWritten(t, &out, bodies)
	})
}

func checkWritten(t *rapid.T, out io.Reader, bodies map[int32]string) {
	in, last := newFrameReader(out), int32(-1)
	for range bodies {
		frame, err := in.next()
		if err != nil {
			t.Fatal(err)
		}
		if body, ok := bodies[frame.Opaque]; !ok || body != string(frame.Body) || frame.Opaque <= last {
			t.Errorf("after %d: got %d with %q, want %q", last, frame.Opaque, frame.Body, body)
		}
		last = frame.Opaque
	}
	if _, err := in.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: got %v, want EOF", err)
	}
}
