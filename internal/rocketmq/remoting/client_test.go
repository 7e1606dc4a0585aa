package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no name server": {Group: "g"},
		"no group":       {Nameservers: []string{"h:1"}},
		"half a key":     {Nameservers: []string{"h:1"}, Group: "g", AccessKey: "a"},
	} {
		if _, err := New(cfg); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

func TestThousandCallsAtATime(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 8), anyBroker(t, c)
	var group sync.WaitGroup
	for i := range 1000 {
		group.Go(func() {
			body := fmt.Sprintf("body %d", i)
			sent, err := sendThrottled(t, c, broker, half(topic, i%8, body))
			if err != nil {
				t.Errorf("sending %q: %v", body, err)
				return
			}
			stored, err := c.View(t.Context(), broker, topic, sent.CommitLogOffset)
			if err != nil || string(stored.Body) != body || stored.UniqKey() != sent.UniqKey {
				t.Errorf("stored %q as %s, %v; want %q as %s", stored.Body, stored.UniqKey(), err, body, sent.UniqKey)
			}
		})
	}
	group.Wait()
}

// sendThrottled repeats a message that the broker's flow control has refused, because a thousand at a time are too many
// on a loaded machine.
func sendThrottled(t *testing.T, c *Client, broker string, m *SendRequest) (sent SendResult, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		sent, err = c.Send(t.Context(), broker, m)
		if !IsCode(err, CodeSystemBusy) {
			return sent, err
		}
	}
	return sent, err
}

func TestNameserversAreTriedInTurn(t *testing.T) {
	_, port, err := net.SplitHostPort(stacktest.Shared(t).Nameservers[0])
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, func(cfg *Config) {
		cfg.Nameservers = []string{"127.0.0.1:1", "nowhere.invalid:9876", net.JoinHostPort("localhost", port)}
	})
	newTopic(t, c, 1)
	if s := c.Status(); s.NameserverErr != nil || s.NameserverAt.IsZero() {
		t.Errorf("got %+v", s)
	}
}

func TestStartWithoutServers(t *testing.T) {
	c, err := New(Config{Nameservers: []string{"127.0.0.1:1"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Errorf("got %v, want no error: servers may come later", err)
	}
	if s := c.Status(); s.NameserverErr == nil || len(s.Brokers) != 0 {
		t.Errorf("got %+v, want the name server's error", s)
	}
	if _, err := c.Route(t.Context(), "topic"); !errors.Is(err, ErrNotSent) {
		t.Errorf("route: got %v, want ErrNotSent", err)
	}
	_, err = c.Send(t.Context(), "broker-a", half("topic", 0, "body"))
	if !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrUnknownBroker) {
		t.Errorf("send: got %v, want ErrNotSent and ErrUnknownBroker", err)
	}
	if err := c.Start(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Errorf("second start: got %v, want ErrInvalid", err)
	}
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
}

func TestRoute(t *testing.T) {
	c := newClient(t, func(cfg *Config) { cfg.RefreshEvery = 50 * time.Millisecond })
	topic, broker := newTopic(t, c, 3), anyBroker(t, c)
	other := newClient(t, nil)
	if _, err := other.Route(t.Context(), "nowhere-"+topic); !IsCode(err, CodeTopicNotExist) {
		t.Errorf("unknown topic: got %v, want code %d", err, CodeTopicNotExist)
	}
	route, err := other.Route(t.Context(), topic)
	if err != nil || len(route.Queues) == 0 || route.Queues[0].Broker != broker || route.Queues[0].Writable() != 3 {
		t.Fatalf("got %+v, %v", route, err)
	}
	if err := other.CreateTopic(t.Context(), topic, 5); err != nil { // grows
		t.Fatal(err)
	}
	await.Success(t, 10*time.Second, func() error { // the first client notices by itself
		route, err := c.Route(t.Context(), topic)
		if err == nil && route.Queues[0].Writable() != 5 {
			err = fmt.Errorf("got %+v, want 5 queues", route)
		}
		return err
	})
}

func TestDeletedTopicIsForgotten(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	other := newClient(t, nil)
	if err := other.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), broker, half(topic, 0, "body")); !IsCode(err, CodeTopicNotExist) {
		t.Errorf("got %v, want code %d", err, CodeTopicNotExist)
	}
	await.Success(t, 10*time.Second, func() error { // much sooner than its regular refresh
		if _, err := c.Route(t.Context(), topic); !IsCode(err, CodeTopicNotExist) {
			return fmt.Errorf("got %w, want code %d", err, CodeTopicNotExist)
		}
		return nil
	})
}

// The client notices a deleted topic without a message to it, because the name server lists the broker and not its
// topic.
func TestDeletedTopicIsNoticedWithoutTraffic(t *testing.T) {
	c := newClient(t, func(cfg *Config) { cfg.RefreshEvery = 200 * time.Millisecond })
	topic := newTopic(t, c, 1)
	if err := newClient(t, nil).DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	await.Success(t, 10*time.Second, func() error {
		if route := (*c.routes.Load())[topic]; route != nil {
			return fmt.Errorf("still kept: %+v", route)
		}
		return nil
	})
}

func TestClosedClient(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), broker, half(topic, 0, "body")); !errors.Is(err, ErrNotSent) {
		t.Errorf("send: got %v, want ErrNotSent", err)
	}
	if _, err := c.RefreshRoute(t.Context(), topic); !errors.Is(err, ErrNotSent) {
		t.Errorf("route: got %v, want ErrNotSent", err)
	}
	if err := c.CreateTopic(t.Context(), topic, 1); err == nil {
		t.Error("a closed client creates topics")
	}
}

// Some calls are cancelled at random moments. The others on the same connection must not notice.
func TestCancelledCallsHarmNobody(t *testing.T) {
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 4), anyBroker(t, c)
	var group sync.WaitGroup
	for i := range 300 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
			defer cancel()
			_, err := c.Send(ctx, broker, half(topic, i%4, "cancelled"))
			if err != nil && errors.Is(err, ErrNotSent) == errors.Is(err, ErrReplyMissing) && !IsCode(err, CodeSystemBusy) {
				t.Errorf("got %v, want exactly one kind", err)
			}
		})
		group.Go(func() {
			if err := c.Ping(t.Context(), broker); err != nil {
				t.Errorf("ping: %v", err)
			}
		})
	}
	group.Wait()
	if s := c.Status(); !s.Brokers[0].Ready() {
		t.Errorf("got %+v", s)
	}
}

// RocketMQ's own tool finds our producer and, by id and by key, our messages.
func TestMQAdminFindsUs(t *testing.T) {
	stack := stacktest.Shared(t)
	c := newClient(t, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	sent := sendHalf(t, c, broker, topic, 0)
	end(t, c, broker, topic, sent, Commit)
	for _, args := range [][]string{
		{"producerConnection", "-g", c.Group(), "-t", topic},
		{"queryMsgByUniqueKey", "-t", topic, "-i", sent.UniqKey},
		{"queryMsgByKey", "-t", topic, "-k", "k1"},
	} {
		want := sent.UniqKey
		if args[0] == "producerConnection" {
			want = c.ClientID()
		}
		await.Success(t, 20*time.Second, func() error {
			out, err := stack.MQAdmin(t.Context(), args...)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("no %s in:\n%s", want, out)
			}
			return err
		})
	}
}

// Three name servers that answer nothing come before the real one.
func TestSilentNameserversAreLeftBehind(t *testing.T) {
	var silent []string
	for range 3 {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // only the kernel accepts
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		silent = append(silent, listener.Addr().String())
	}
	c := newClient(t, func(cfg *Config) {
		cfg.Nameservers = append(silent, cfg.Nameservers...)
		cfg.DialTimeout, cfg.ReplyTimeout = time.Second, 3*time.Second
	})
	begin := time.Now()
	if _, err := c.Route(t.Context(), "nowhere-"+UniqKey()); !IsCode(err, CodeTopicNotExist) {
		t.Errorf("got %v, want code %d", err, CodeTopicNotExist)
	}
	if took := time.Since(begin); took > 2800*time.Millisecond {
		t.Errorf("an unknown topic took %v: the silent ones were asked again", took)
	}
}
