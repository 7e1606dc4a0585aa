//go:build unix

package sessions

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Silent says whether nothing has arrived on an idle connection: neither its end nor what a server says when it ends it.
// It looks without waiting and takes nothing away. Where it cannot look, it says false.
func Silent(conn net.Conn) bool {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	// Control and not Read: pgx may have left a reader waiting on the connection, behind which Read would wait, too.
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, peekErr := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = peekErr == unix.EAGAIN || peekErr == unix.EWOULDBLOCK
	})
	return err == nil && quiet
}
