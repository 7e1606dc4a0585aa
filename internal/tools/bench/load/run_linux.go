package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// patience bounds the wait for answers after the last request.
	patience = 10 * time.Second
	// tick bounds one wait, so that the end of the load and of ctx is seen.
	tick    = 20 * time.Millisecond
	buffer  = 64 << 10 // of one connection; an answer must fit
	timerFD = -1       // marks the timer among the connections
)

type connection struct {
	fd   int
	busy bool
	due  time.Time // of its request
	in   []byte
	have int
}

// generator is one load under way.
type generator struct {
	Options
	ctx     context.Context //nolint:containedctx // of this one run
	address unix.Sockaddr
	epoll   int
	timer   int
	all     []*connection
	free    []*connection
	out     []byte
	result  *Result
	end     time.Time
}

// Run makes the load, and returns when all answers have come, or 10 s after the last request. An error means that the load could
// not be made; answers other than 2xx are counted in the result. When ctx ends, Run stops sending.
func Run(ctx context.Context, o Options) (*Result, error) {
	address, err := sockaddr(o.Address)
	if err != nil {
		return nil, err
	}
	g := &generator{Options: o, ctx: ctx, address: address, result: &Result{Samples: make([]Sample, 0, expected(o))}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer g.close()
	if err := g.open(); err != nil {
		return nil, err
	}
	if err := g.run(); err != nil {
		return nil, err
	}
	return g.result, nil
}

// expected is how many samples get their memory before the load begins.
func expected(o Options) int {
	rate := o.Rate
	if rate == 0 {
		rate = 15_000
	}
	return int(rate*o.Duration.Seconds()) + 1000
}

func sockaddr(address string) (unix.Sockaddr, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("the load's address: %w", err)
	}
	return &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}, nil
}

func (g *generator) open() (err error) {
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	if err := g.watch(g.timer, timerFD); err != nil {
		return err
	}
	for i := range g.Connections {
		c := &connection{in: make([]byte, buffer), fd: -1}
		g.all = append(g.all, c)
		if err := g.connect(i); err != nil {
			return err
		}
		g.free = append(g.free, c)
	}
	return nil
}

func (g *generator) watch(fd, index int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// connect opens the i-th connection, anew when it is broken.
func (g *generator) connect(i int) error {
	c := g.all[i]
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c.fd, c.have, c.busy = fd, 0, false
	if err := unix.Connect(fd, g.address); err != nil {
		return fmt.Errorf("connecting to %s: %w", g.Address, err)
	}
	if err := errors.Join(unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)); err != nil {
		return fmt.Errorf("connection: %w", err)
	}
	return g.watch(fd, i)
}

func (g *generator) close() {
	for _, c := range g.all {
		if c.fd >= 0 {
			_ = unix.Close(c.fd)
		}
	}
	_, _ = unix.Close(g.timer), unix.Close(g.epoll)
}

func (g *generator) run() error {
	events := make([]unix.EpollEvent, len(g.all)+1)
	g.result.Begin = time.Now()
	g.end = g.result.Begin.Add(g.Duration)
	for {
		if err := g.send(); err != nil {
			return err
		}
		now := time.Now()
		if now.After(g.end) && (len(g.free) == len(g.all) && !g.owes() || now.After(g.end.Add(patience))) {
			break
		}
		n, err := g.wait(events)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		if g.ctx.Err() != nil && now.Before(g.end) {
			g.end = now
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd != timerFD {
				if err := g.receive(int(e.Fd)); err != nil {
					return err
				}
			}
		}
	}
	for range len(g.all) - len(g.free) {
		g.result.fail("no answer " + patience.String() + " after the end of the load")
	}
	for ; g.owes(); g.result.Sent++ {
		g.result.fail("not sent " + patience.String() + " after the end of the load: no connection was free")
	}
	return nil
}

// owes reports whether a request of an open loop was due before the end of the load, and is not sent.
func (g *generator) owes() bool { return g.Rate > 0 && g.due().Before(g.end) }

// send sends what is due, as far as connections are free.
func (g *generator) send() error {
	now := time.Now()
	for len(g.free) > 0 {
		due := now
		if g.Rate > 0 {
			due = g.due()
		}
		if !due.Before(g.end) {
			return nil
		}
		if due.After(now) {
			return g.wakeAt(due)
		}
		c := g.free[len(g.free)-1]
		g.free = g.free[:len(g.free)-1]
		c.due, c.busy = due, true
		g.out = g.Append(g.out[:0], g.result.Sent)
		g.result.Sent++
		if n, err := unix.Write(c.fd, g.out); err != nil || n < len(g.out) {
			return fmt.Errorf("sending a request of %d bytes: %d were taken: %w", len(g.out), n, err)
		}
	}
	return nil
}

// due is when the next request of an open loop is due.
func (g *generator) due() time.Time {
	return g.result.Begin.Add(time.Duration(float64(g.result.Sent) / g.Rate * float64(time.Second)))
}

// wakeAt arms the timer. Arming it also takes back an earlier expiration, so that the timer is never read.
func (g *generator) wakeAt(at time.Time) error {
	wait := max(time.Until(at), time.Nanosecond)
	err := unix.TimerfdSettime(g.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(wait.Nanoseconds())}, nil)
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	return nil
}

// receive reads what has come on the i-th connection.
func (g *generator) receive(i int) error {
	c := g.all[i]
	n, err := unix.Read(c.fd, c.in[c.have:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return g.broken(i, err.Error())
	case n == 0:
		return g.broken(i, "the server closed a connection, or its answer is too long")
	}
	c.have += n
	status, body, size, err := parse(c.in[:c.have])
	switch {
	case err != nil:
		return g.broken(i, err.Error())
	case size == 0:
		return nil
	case size < c.have || !c.busy:
		return g.broken(i, "an answer to nothing")
	}
	now := time.Now()
	if status/100 == 2 {
		g.result.Samples = append(g.result.Samples, Sample{
			At: uint32(now.Sub(g.result.Begin).Microseconds()), Latency: uint32(now.Sub(c.due).Microseconds()),
		})
	} else {
		g.result.fail(fmt.Sprintf("%d: %.300s", status, body))
	}
	if g.Answer != nil {
		g.Answer(status, body)
	}
	c.have, c.busy = 0, false
	g.free = append(g.free, c)
	return nil
}

// broken counts the connection's request as failed, and connects again.
func (g *generator) broken(i int, reason string) error {
	busy := g.all[i].busy
	if busy {
		g.result.fail(reason)
	}
	if err := g.connect(i); err != nil {
		return fmt.Errorf("%w (after: %s)", err, reason)
	}
	if busy {
		g.free = append(g.free, g.all[i])
	}
	return nil
}

// wait waits for events. A raw system call keeps the runtime from giving the thread's P away and getting it back, which would cost
// half of a request. The runtime interrupts it with a signal when it needs the P.
func (g *generator) wait(events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6( //nolint:gosec // as package unix does it
		unix.SYS_EPOLL_PWAIT, uintptr(g.epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(tick.Milliseconds()), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
