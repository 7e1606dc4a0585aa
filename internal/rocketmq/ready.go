package rocketmq

import (
	"context"
	"fmt"
	"slices"
)

// Check is the state of one thing that the service depends on.
type Check struct {
	Name   string
	Err    error
	Detail string
	Half   bool // with Err: the broker answers, but does not store half messages
}

// Check looks at the name servers, the brokers and the topics.
func (c *Client) Check(ctx context.Context, topics []string) []Check {
	status := c.remote.Status()
	checks := []Check{{Name: "nameserver", Err: status.NameserverErr}}
	for _, b := range status.Brokers {
		check := Check{Name: "broker:" + b.Name, Err: b.Err}
		if !b.Ready() && check.Err == nil {
			check.Err = fmt.Errorf("no heartbeat was answered yet")
		}
		if o := c.breakerOf(b.Name).outage.Load(); o != nil && check.Err == nil {
			check.Err, check.Half = o.error(b.Name), true
		}
		checks = append(checks, check)
	}
	if len(status.Brokers) == 0 {
		checks = append(checks, Check{Name: "broker", Err: fmt.Errorf("the name server knows no master broker")})
	}
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(topics))) {
		check := Check{Name: "topic:" + topic}
		queues, err := c.Queues(ctx, topic)
		if err != nil {
			check.Err = err
		} else {
			check.Detail = fmt.Sprintf("%d queues", len(queues))
		}
		checks = append(checks, check)
	}
	return checks
}
