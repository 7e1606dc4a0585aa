package remoting

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// UniqKey returns a new message id in RocketMQ's standard form: 32 upper-case hex digits of IPv4 4 bytes, process id 2,
// a constant of the process 4, milliseconds since the month began 4, counter 2 (MessageClientIDSetter of RocketMQ, so
// mqadmin can read address and time off it). The constant is random here, because replicas often share address and
// process id. UniqKey is safe for concurrent use. A process makes no id twice, even if the clock is set back.
func UniqKey() string {
	g := uniqKeys()
	for {
		last := g.last.Load()
		next := max(last+1, uint64(time.Now().UnixMilli())<<16)
		if g.last.CompareAndSwap(last, next) {
			return g.format(int64(next>>16), uint16(next))
		}
	}
}

// uniqKeys is created once, at first use.
var uniqKeys = sync.OnceValue(func() *uniqKeyGenerator {
	g := &uniqKeyGenerator{}
	copy(g.prefix[:4], localIPv4())
	binary.BigEndian.PutUint16(g.prefix[4:], uint16(os.Getpid()))
	_, _ = rand.Read(g.prefix[6:]) // never fails
	return g
})

type uniqKeyGenerator struct {
	prefix [10]byte
	last   atomic.Uint64 // milliseconds << 16 | counter of the newest id
	month  atomic.Pointer[month]
}

// month is a calendar month of the local time zone, in milliseconds.
type month struct{ begin, end int64 }

func (g *uniqKeyGenerator) format(ms int64, counter uint16) string {
	m := g.month.Load()
	if m == nil || ms >= m.end || ms < m.begin {
		m = monthOf(ms)
		g.month.Store(m)
	}
	var raw [16]byte
	copy(raw[:], g.prefix[:])
	binary.BigEndian.PutUint32(raw[10:], uint32(ms-m.begin))
	binary.BigEndian.PutUint16(raw[14:], counter)
	return upperHex(raw)
}

func monthOf(ms int64) *month {
	t := time.UnixMilli(ms)
	begin := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.Local)
	end := time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.Local)
	return &month{begin: begin.UnixMilli(), end: end.UnixMilli()}
}

func upperHex(raw [16]byte) string {
	var text [32]byte
	hex.Encode(text[:], raw[:])
	for i, c := range text {
		if c >= 'a' {
			text[i] = c - 'a' + 'A'
		}
	}
	return string(text[:])
}

// localIPv4 returns the first address that is not loopback, or 127.0.0.1.
func localIPv4() net.IP {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.To4()
		}
	}
	return net.IPv4(127, 0, 0, 1).To4()
}
