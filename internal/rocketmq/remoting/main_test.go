package remoting

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stacktest.With(m))
}

// newClient returns a started client of the shared stack, all of whose brokers
// are ready.
func newClient(t testing.TB, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{Nameservers: stacktest.Shared(t).Nameservers, Group: "remoting-" + UniqKey()}
	if change != nil {
		change(&cfg)
	}
	return startClient(t, cfg, nil)
}

func startClient(t testing.TB, cfg Config, handle func(context.Context, Checkback)) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if handle != nil {
		c.OnCheckback(handle)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	awaitReady(t, c)
	return c
}

func awaitReady(t testing.TB, c *Client) {
	t.Helper()
	await.Success(t, 20*time.Second, func() error {
		s := c.Status()
		if len(s.Brokers) == 0 {
			return fmt.Errorf("no brokers: %w", errors.Join(s.NameserverErr))
		}
		for _, b := range s.Brokers {
			if !b.Ready() {
				return fmt.Errorf("broker %s is not ready: %w", b.Name, errors.Join(b.Err))
			}
		}
		return nil
	})
}

var topicCount atomic.Int64

// newTopic creates a topic for one test.
func newTopic(t testing.TB, c *Client, queues int) string {
	t.Helper()
	topic := fmt.Sprintf("remoting-%s-%d", UniqKey(), topicCount.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.CreateTopic(ctx, topic, queues); err != nil {
		t.Fatal(err)
	}
	return topic
}

// anyBroker returns the name of a connected broker.
func anyBroker(t testing.TB, c *Client) string {
	t.Helper()
	return c.Status().Brokers[0].Name
}
