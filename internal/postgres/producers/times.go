package producers

import (
	"encoding/binary"
	"time"
)

const (
	// flushEvery is how long a delivery that is confirmed waits for others before it is written.
	flushEvery = 25 * time.Millisecond
	// idleEvery is how often a process says that it lives while it delivers nothing.
	idleEvery  = 500 * time.Millisecond
	flushRetry = 250 * time.Millisecond
	// flushFinish bounds the last flush when the process stops.
	flushFinish = 5 * time.Second
	// ahead is how long after a flush rows can be tracked. It is longer than a flush usually takes, and short, because all rows
	// of that time are looked at when the process is gone.
	ahead = 2 * time.Second
	// patience is how long an attempt that has not written its row holds the watermark back.
	patience = time.Second
	// setBack is by how much the clock may be set back until rows are not tracked.
	setBack = time.Second
	// known is how long a process that is gone is known: brokers ask about its half messages for a shorter time.
	known = 30 * 24 * time.Hour
	// trackLimit bounds the attempts in memory: with more of them rows are not tracked.
	trackLimit = 200_000
	wroteLimit = 1000 // watermarks that may have been written
	handLimit  = 1000 // rows handed over in one statement
	// A process that is gone is looked at again when a part of the time since the first look has passed, within these bounds.
	firstLook, lastLook = time.Second, 10 * time.Minute
	lookPart            = 8
)

// micros is a time as PostgreSQL stores it.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// appendTimes appends when the message of a row became visible: how long after the row before (the first: after 1970) the row
// began, and how long after that its message was visible, in microseconds as varints.
func appendTimes(b []byte, before, created, visible int64) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, uint64(created-before)), visible-created)
}

// VisibleAt finds the time at which the message of a row became visible in an entry of txsvc.visible; zero: it is not there.
func VisibleAt(times []byte, createdAt time.Time) time.Time {
	at := int64(0)
	for len(times) > 0 {
		step, n := binary.Uvarint(times)
		if n <= 0 {
			break
		}
		took, m := binary.Varint(times[n:])
		if m <= 0 {
			break
		}
		times, at = times[n+m:], at+int64(step)
		if at == micros(createdAt) {
			return fromMicros(at + took)
		}
	}
	return time.Time{}
}
