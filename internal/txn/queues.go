package txn

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TopicLayout has the brokers of a topic that name servers list.
type TopicLayout struct {
	Brokers []BrokerLayout // those with a master, sorted by name
	Absent  []string       // brokers of the topic that have no master now
}

// BrokerLayout is one broker's share of a topic, in numbers of queues, whose ids count from 0: those that the topic
// has, and those that its permission allows.
type BrokerLayout struct {
	Broker             string
	Read, Write        int
	Readable, Writable int
}

// Unread names the queues that can be written although no consumer reads them. Nothing is sent to them. It is empty
// when there are none.
func (b BrokerLayout) Unread() string {
	if b.Writable <= b.Readable {
		return ""
	}
	return fmt.Sprintf("broker %s has %d queues to write and %d to read, so its queues %d to %d are not used: no consumer reads them",
		b.Broker, b.Writable, b.Readable, b.Readable, b.Writable-1)
}

// AcceptedQueues is the list of queues that selectors with OnChangeRefuse choose from, the same in every replica.
type AcceptedQueues struct {
	Queues     []Queue // sorted
	Version    int64   // counts the acceptances of the topic, from 1
	AcceptedAt time.Time
	// Previous is the list before, in use until Pause is over. Keys that the two lists send to different queues are refused
	// that long, so that no two replicas send one key to different queues at the same time.
	Previous []Queue
	Pause    time.Duration // the rest of the pause when the list was read
	// Selector is the selector of ordered messages, as Destination.OrderedSelector has it, and PreviousSelector the one before
	// the last acceptance; empty: not recorded.
	Selector, PreviousSelector string
}

// JavaQueues is the list of a topic's queues that RocketMQ's Java client makes, in its order.
type JavaQueues struct {
	Queues []Queue
	Order  string // the topic's orderTopicConf, of which alone the list is made; empty: there is none
}

// RouteQuery asks where a message would go. Exactly one of Kind and Topic is given.
type RouteQuery struct {
	Kind, Topic string
	SelectorInput
}

// RoutePreview is where a message would go now.
type RoutePreview struct {
	Topic  string
	Route  Route
	Queues int // that the selector chose from, before lanes
}

// TopicQueues are a topic's queues as the selectors see them.
type TopicQueues struct {
	Topic      string
	Selector   string
	OnChange   OnChange
	Kinds      []KindRouting // that use the topic, by name
	Queues     []QueueState  // sorted
	ChangedAt  time.Time     // when the live queues changed; zero: not since this process started
	Version    int64         // of the accepted list; 0: there is none
	AcceptedAt time.Time
	Pause      time.Duration // until the accepted list is in use; 0: it is
}

// KindRouting is how a kind picks queues of its topic.
type KindRouting struct {
	Kind, Selector string
	OnChange       OnChange
}

// QueueState is one queue of a topic, or one that an accepted list names and the topic does not have.
type QueueState struct {
	Queue
	Writable bool // the broker takes messages for it
	Readable bool // consumers read it; selectors with OnChangeRemap choose from those that are both
	Accepted bool // selectors with OnChangeRefuse choose from these
}

// ParseQueue reads what Queue.String writes.
func ParseQueue(s string) (Queue, error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return Queue{}, fmt.Errorf("%q is not a queue: it has the form broker:id", s)
	}
	id, err := strconv.Atoi(s[i+1:])
	if err != nil || id < 0 {
		return Queue{}, fmt.Errorf("%q is not a queue: it has the form broker:id", s)
	}
	return Queue{Broker: s[:i], ID: id}, nil
}
