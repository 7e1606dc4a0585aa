package remoting

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// topicPoll is the time between two looks of CreateTopic whether name servers know the topic.
const topicPoll = 20 * time.Millisecond

// CreateTopic creates a topic with that many queues on every master, or changes it, and waits until the name servers'
// route has it. ctx bounds all of this.
func (c *Client) CreateTopic(ctx context.Context, topic string, queues int) error {
	masters, err := c.names.fetchMasters(ctx)
	if err != nil {
		return err
	}
	if len(masters) == 0 {
		return fmt.Errorf("creating topic %q: %w: name servers list none", topic, ErrUnknownBroker)
	}
	req := topicRequest(topic, QueueData{Read: queues, Write: queues, Perm: PermRead | PermWrite})
	for _, m := range masters {
		if err := c.callMaster(ctx, m, req); err != nil {
			return err
		}
	}
	return c.awaitRoute(ctx, topic, len(masters), queues)
}

func topicRequest(topic string, share QueueData) *request {
	return &request{op: "create topic", code: codeUpdateTopic, header: fieldList{
		{"defaultTopic", defaultTopic}, {"order", "false"}, {"perm", strconv.Itoa(share.Perm)},
		{"readQueueNums", strconv.Itoa(share.Read)}, {fieldTopic, topic}, {"topicFilterType", "SINGLE_TAG"}, {"topicSysFlag", "0"},
		{"writeQueueNums", strconv.Itoa(share.Write)},
	}}
}

// ChangeTopic sets the queues and the permission that one master, share.Broker, has for a topic. It does not wait until
// name servers know.
func (c *Client) ChangeTopic(ctx context.Context, topic string, share QueueData) error {
	_, err := c.callBroker(ctx, share.Broker, topicRequest(topic, share), time.Time{})
	return err
}

// callMaster is callBroker for a broker that may not be connected yet.
func (c *Client) callMaster(ctx context.Context, m Master, req *request) error {
	c.ensureLink(m)
	if l := (*c.links.Load())[m.Name]; l != nil {
		waitFor(ctx, l.settled)
	}
	_, err := c.callBroker(ctx, m.Name, req, time.Time{})
	return err
}

func (c *Client) awaitRoute(ctx context.Context, topic string, masters, queues int) error {
	for {
		route, err := c.RefreshRoute(ctx, topic)
		if err == nil && len(route.Queues) >= masters && allHave(route, queues) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the route of topic %q: %w", topic, errors.Join(ctx.Err(), err))
		}
		pause.For(ctx, topicPoll)
	}
}

func allHave(route *Route, queues int) bool {
	for _, q := range route.Queues {
		if q.Writable() != queues || q.Read != queues {
			return false
		}
	}
	return true
}

// DeleteTopic removes a topic from every master and from the name servers.
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	masters, err := c.names.fetchMasters(ctx)
	if err != nil {
		return err
	}
	atBroker := &request{op: "delete topic", code: codeDeleteTopic, header: fieldList{{fieldTopic, topic}}}
	for _, m := range masters {
		if err := c.callMaster(ctx, m, atBroker); err != nil {
			return err
		}
	}
	c.forgetRoute(topic)
	return c.ForgetTopic(ctx, topic)
}

// ForgetTopic removes a topic from the name servers only. A broker that has the topic registers it again within 60 s.
func (c *Client) ForgetTopic(ctx context.Context, topic string) error {
	return c.names.askAll(ctx, &request{op: "forget topic", code: codeForgetTopic, header: fieldList{{fieldTopic, topic}}})
}

// TopicConfig is a broker's own configuration of a topic.
type TopicConfig struct {
	QueueData
	Attributes map[string]string // that differ from their defaults, for example cleanup.policy
}

// Compacted reports whether the broker retains only the last message of each key, and takes no messages without keys.
func (c *TopicConfig) Compacted() bool { return c.Attributes["cleanup.policy"] == "COMPACTION" }

// TopicConfig asks a broker for its own configuration of a topic (GET_TOPIC_CONFIG, since RocketMQ 5.0). When the
// broker does not have the topic, the error is a BrokerError with CodeTopicNotExist.
func (c *Client) TopicConfig(ctx context.Context, broker, topic string) (TopicConfig, error) {
	req := &request{op: "topic's configuration", code: codeTopicConfig, header: fieldList{{fieldTopic, topic}}}
	reply, err := c.callBroker(ctx, broker, req, time.Time{})
	if err != nil {
		return TopicConfig{}, err
	}
	var data struct {
		ReadQueueNums  int               `json:"readQueueNums"`
		WriteQueueNums int               `json:"writeQueueNums"`
		Perm           int               `json:"perm"`
		Attributes     map[string]string `json:"attributes"`
	}
	if err := unmarshalLoose(reply.Body, &data); err != nil {
		return TopicConfig{}, fmt.Errorf("topic's configuration: %w", err)
	}
	share := QueueData{Broker: broker, Read: data.ReadQueueNums, Write: data.WriteQueueNums, Perm: data.Perm}
	return TopicConfig{QueueData: share, Attributes: data.Attributes}, nil
}
