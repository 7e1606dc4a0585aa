//go:build !linux

package remoting

import (
	"syscall"
	"time"
)

// ackTimeoutControl does nothing where TCP_USER_TIMEOUT does not exist.
func ackTimeoutControl(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
