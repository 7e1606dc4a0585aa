package remoting

import (
	"net"
	"syscall"
	"testing"
	"time"
)

func TestAckTimeoutIsSet(t *testing.T) {
	c, _ := newPeer(t, func(o *connOptions) { o.ackTimeout = 4321 * time.Millisecond })
	raw, err := c.socket.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got, noDelay int
	err = raw.Control(func(fd uintptr) {
		got, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		noDelay, _ = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	})
	if err != nil || got != 4321 || noDelay == 0 {
		t.Errorf("got a limit of %d ms, no delay %d, %v; want 4321", got, noDelay, err)
	}
}
