package remoting

import (
	"cmp"
	"slices"
	"time"
)

// Status is the state of the client's servers at one moment.
type Status struct {
	NameserverErr error     // of the last attempt; nil when one answered
	NameserverAt  time.Time // when one answered last
	Brokers       []BrokerStatus
}

// BrokerStatus is the state of the connection to one master.
type BrokerStatus struct {
	Name, Addr  string
	Connected   bool
	HeartbeatAt time.Time // when one was answered last
	Version     int       // of its RocketMQ, see VersionTimer; 0 until a heartbeat was answered
	Err         error     // of the last heartbeat or attempt to connect
}

// VersionTimer is the first version whose brokers deliver messages at a given time (the ordinal of V5_0_0 in RocketMQ's
// MQVersion). Older ones ignore the property and deliver at once.
const VersionTimer = 413

// BrokerVersion returns the version of a broker's RocketMQ as BrokerStatus has it.
func (c *Client) BrokerVersion(broker string) int {
	l := (*c.links.Load())[broker]
	if l == nil {
		return 0
	}
	return l.status().Version
}

// Ready reports whether the broker is connected and has answered the latest
// heartbeat, so that it takes messages and sends check-backs.
func (b BrokerStatus) Ready() bool { return b.Connected && b.Err == nil && !b.HeartbeatAt.IsZero() }

// ConnectedSince returns when the present connection to a broker was made, so the broker has not started since. It
// returns false when there is no connection.
func (c *Client) ConnectedSince(broker string) (time.Time, bool) {
	l := (*c.links.Load())[broker]
	if l == nil || l.current.Load() == nil {
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, true
}

// Status returns a snapshot, brokers sorted by name.
func (c *Client) Status() Status {
	c.names.mu.Lock()
	s := Status{NameserverErr: c.names.lastErr, NameserverAt: c.names.lastOK}
	c.names.mu.Unlock()
	for _, l := range *c.links.Load() {
		s.Brokers = append(s.Brokers, l.status())
	}
	slices.SortFunc(s.Brokers, func(a, b BrokerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func (l *link) status() BrokerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return BrokerStatus{
		Name: l.name, Addr: l.addr, Connected: l.current.Load() != nil, HeartbeatAt: l.lastBeat, Version: l.version, Err: l.lastErr,
	}
}

// Stats has counters that begin when the client is made.
type Stats struct {
	FramesWritten     int64
	Writes            int64 // system calls for them; fewer than frames when calls come together
	FramesRead        int64
	Checkbacks        int64
	CheckbacksDropped int64
}

// Stats returns the counters' present values.
func (c *Client) Stats() Stats {
	return Stats{
		FramesWritten: c.counters.framesWritten.Load(), Writes: c.counters.writes.Load(),
		FramesRead: c.counters.framesRead.Load(),
		Checkbacks: c.checkbacks.received.Load(), CheckbacksDropped: c.checkbacks.dropped.Load(),
	}
}
