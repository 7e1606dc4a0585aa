package txn

import (
	"math/rand/v2"
	"time"
)

// SendStatus says how safely the broker has stored a message, in RocketMQ's words. A message with any of them is stored,
// and consumers see it; only SendOK promises what the broker's configuration promises.
type SendStatus string

// The statuses with which a broker accepts a message.
const (
	SendOK            SendStatus = "SEND_OK"
	FlushDiskTimeout  SendStatus = "FLUSH_DISK_TIMEOUT"
	FlushSlaveTimeout SendStatus = "FLUSH_SLAVE_TIMEOUT"
	SlaveNotAvailable SendStatus = "SLAVE_NOT_AVAILABLE"
)

// How often a busy broker is waited for, and for how long at most the first time; it doubles with every further one.
const (
	busyPauses     = 4
	firstBusyPause = 100 * time.Millisecond
)

// BusyPause returns how long to wait before the next try at a broker that was busy so many times before. ok is false when
// it was waited for often enough.
func BusyPause(before int) (pause time.Duration, ok bool) {
	if before >= busyPauses {
		return 0, false
	}
	return rand.N(firstBusyPause << before), true
}
