package remoting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connOptions are the settings that all connections of a client share.
type connOptions struct {
	codec        Codec
	credentials  *credentials // nil: requests are not signed
	dialTimeout  time.Duration
	replyTimeout time.Duration // of calls whose context has no deadline
	writeTimeout time.Duration // after which the connection is given up when the socket takes nothing
	ackTimeout   time.Duration // the same for the peer's TCP acknowledgements
	maxQueued    int           // bytes
	// onRequest gets the peer's own requests. The reader calls it, so it must not block.
	onRequest func(c *conn, f Frame)
	counters  *counters
}

// counters are shared by all connections of a client.
type counters struct {
	framesWritten, writes, framesRead atomic.Int64
}

// conn is one connection to a broker or name server, shared by any number of concurrent calls. One goroutine writes all
// waiting frames at once. Another one reads, and gives each reply to its call by the opaque. A conn that is broken
// stays broken; callers dial a new one.
type conn struct {
	broker string // its name; empty for name servers
	addr   string
	socket net.Conn
	opts   *connOptions
	broken chan struct{} // closed when err is set and all calls have their errors
	loops  sync.WaitGroup

	mu      sync.Mutex
	wake    sync.Cond // the writer waits for queue or err
	queue   batch
	encoder fieldWriter
	pending map[int32]*call
	opaque  int32
	err     error
}

// call is one request that waits for its reply. Only the goroutine that removes it from pending completes it; then it
// may be reused.
type call struct {
	done   chan struct{} // capacity 1
	timer  *time.Timer   // stopped, or nil
	opaque int32
	taken  bool // by the writer; guarded by conn.mu
	reply  Frame
	kind   error // with cause, instead of a reply
	cause  error
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// dial connects to addr, which may hold a host name. ctx bounds the dialing only.
func dial(ctx context.Context, broker, addr string, opts *connOptions) (*conn, error) {
	d := net.Dialer{Timeout: opts.dialTimeout, Control: ackTimeoutControl(opts.ackTimeout)}
	socket, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return newConn(broker, addr, socket, opts), nil
}

// newConn starts the two goroutines of a connection.
func newConn(broker, addr string, socket net.Conn, opts *connOptions) *conn {
	c := &conn{
		broker: broker, addr: addr, socket: socket, opts: opts,
		broken: make(chan struct{}), pending: make(map[int32]*call), encoder: fieldWriter{codec: opts.codec},
	}
	c.wake.L = &c.mu
	c.loops.Go(c.writeLoop)
	c.loops.Go(c.readLoop)
	return c
}

// call sends a request and returns its reply, whatever its code. The end of ctx only ends the wait. A request that
// cannot be written before writeBefore (unless zero) is not written at all.
func (c *conn) call(ctx context.Context, req *request, writeBefore time.Time) (Frame, error) {
	if err := ctx.Err(); err != nil {
		return Frame{}, notSent(req.op, c.addr, err)
	}
	ca, err := c.enqueue(req, writeBefore)
	if err != nil {
		return Frame{}, notSent(req.op, c.addr, err)
	}
	return c.wait(ctx, req.op, ca)
}

// wait waits for the outcome of an enqueued request until ctx ends; if ctx has no deadline, replyTimeout at most.
func (c *conn) wait(ctx context.Context, op string, ca *call) (Frame, error) {
	if cause := c.await(ctx, ca); cause != nil {
		if kind := c.abandon(ca); kind != nil {
			return Frame{}, &CallError{Op: op, Addr: c.addr, Kind: kind, Cause: cause}
		}
		<-ca.done
	}
	reply, kind, cause := ca.reply, ca.kind, ca.cause
	*ca = call{done: ca.done, timer: ca.timer}
	callPool.Put(ca)
	if kind != nil {
		return Frame{}, &CallError{Op: op, Addr: c.addr, Kind: kind, Cause: cause}
	}
	return reply, nil
}

// await returns nil when the outcome has arrived, and otherwise the reason for the end of the wait. The timer belongs
// to the call, because a context for each call costs more than the rest of waiting.
func (c *conn) await(ctx context.Context, ca *call) error {
	var expired <-chan time.Time
	if _, limited := ctx.Deadline(); !limited {
		if ca.timer == nil {
			ca.timer = time.NewTimer(c.opts.replyTimeout)
		} else {
			ca.timer.Reset(c.opts.replyTimeout)
		}
		defer ca.timer.Stop()
		expired = ca.timer.C
	}
	select {
	case <-ca.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-expired:
		return context.DeadlineExceeded
	}
}

// oneWay queues a request that gets no answer, or a reply to the peer's request. It does not wait until the frame is
// written.
func (c *conn) oneWay(req *request, writeBefore time.Time) error {
	if req.flag&flagReply == 0 {
		req.flag |= flagOneWay
	}
	if _, err := c.enqueue(req, writeBefore); err != nil {
		return notSent(req.op, c.addr, err)
	}
	return nil
}

// enqueue encodes the request behind those that wait already. It registers a call for it, unless the request gets no
// answer.
func (c *conn) enqueue(req *request, writeBefore time.Time) (*call, error) {
	if c.opts.credentials != nil && req.flag&flagReply == 0 {
		signed := *req
		signed.header = c.opts.credentials.sign(req.header, req.body)
		req = &signed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if len(c.queue.buf)+len(req.body) > c.opts.maxQueued {
		return nil, ErrQueueFull
	}
	opaque := req.opaque
	if req.flag&flagReply == 0 {
		opaque = c.nextOpaque()
	}
	answered := req.flag&(flagReply|flagOneWay) == 0
	f := queuedFrame{opaque: opaque, answered: answered, writeBefore: writeBefore}
	if err := c.queue.add(&c.encoder, req, f); err != nil {
		return nil, err
	}
	c.wake.Signal()
	if !answered {
		return nil, nil
	}
	ca := callPool.Get().(*call)
	ca.opaque = opaque
	c.pending[opaque] = ca
	return ca, nil
}

// nextOpaque returns a number that no pending call has.
func (c *conn) nextOpaque() int32 {
	for {
		c.opaque = (c.opaque + 1) & 0x7fffffff
		if _, taken := c.pending[c.opaque]; !taken {
			return c.opaque
		}
	}
}

// abandon gives up a call. It returns ErrNotSent or ErrReplyMissing, or nil when the outcome has just arrived.
func (c *conn) abandon(ca *call) (kind error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[ca.opaque] != ca {
		return nil
	}
	delete(c.pending, ca.opaque)
	if ca.taken {
		return ErrReplyMissing
	}
	return ErrNotSent // because the writer leaves out frames whose call is gone
}

// take removes a call from the pending ones; nil when it is gone already.
func (c *conn) take(opaque int32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca := c.pending[opaque]
	delete(c.pending, opaque)
	return ca
}

func (ca *call) fail(kind, cause error) {
	ca.kind, ca.cause = kind, cause
	ca.done <- struct{}{}
}

func (c *conn) readLoop() {
	in := newFrameReader(c.socket)
	for {
		frame, err := in.next()
		if err != nil {
			c.fail(readError(err))
			return
		}
		c.opts.counters.framesRead.Add(1)
		if !frame.isReply() {
			c.opts.onRequest(c, frame)
			continue
		}
		if ca := c.take(frame.Opaque); ca != nil {
			ca.reply = frame
			ca.done <- struct{}{}
		}
	}
}

func readError(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("connection closed by the other side: %w", err)
	}
	return fmt.Errorf("reading: %w", err)
}

// fail breaks the connection: frames that were not written never will be, and all calls get their errors. Only the
// first cause counts.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = cause
	pending := c.pending
	c.pending, c.queue = nil, batch{}
	c.mu.Unlock()
	c.wake.Broadcast()
	if len(pending) > 0 || !errors.Is(cause, ErrClosed) {
		discardUnsent(c.socket)
	}
	_ = c.socket.Close()
	for _, ca := range pending {
		kind := ErrNotSent
		if ca.taken {
			kind = ErrReplyMissing
		}
		ca.fail(kind, cause)
	}
	close(c.broken)
}

// cause returns why the connection broke, or nil.
func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection and waits for its goroutines.
func (c *conn) close() {
	c.fail(ErrClosed)
	c.loops.Wait()
}

// discardUnsent makes Close throw away the bytes that the kernel has not sent yet. Otherwise they could reach the peer
// after their calls have failed.
func discardUnsent(socket net.Conn) {
	if tcp, ok := socket.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}
