package remoting

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// eager makes brokers ask within about two seconds.
func eager() devstack.Options {
	return devstack.Options{BrokerConfig: stacktest.Patient(map[string]string{
		"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "100",
	})}
}

// collector is a check-back handler that collects check-backs.
type collector chan Checkback

func (c collector) handle(_ context.Context, cb Checkback) { c <- cb }

func (c collector) next(t *testing.T, uniqKey string) Checkback {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case cb := <-c:
			if cb.UniqKey == uniqKey {
				return cb
			}
		case <-deadline:
			t.Fatalf("no check-back of %s", uniqKey)
		}
	}
}

func answerOf(cb Checkback, d Decision) *EndRequest {
	return &EndRequest{
		Topic: cb.Topic, UniqKey: cb.UniqKey, CommitLogOffset: cb.CommitLogOffset, HalfQueueOffset: cb.HalfQueueOffset,
		Decision: d, FromCheckback: true,
	}
}

func TestFaults(t *testing.T) {
	stack := stacktest.Private(t, eager())
	cfg := func(group string) Config {
		return Config{
			Nameservers: stack.Nameservers(), Group: group, RefreshEvery: 200 * time.Millisecond,
			HeartbeatEvery: time.Hour, // only the one at the start of a connection
		}
	}
	t.Run("check-back is answered", func(t *testing.T) { checkbackIsAnswered(t, cfg("answering")) })
	t.Run("check-back without traffic", func(t *testing.T) { checkbackWithoutTraffic(t, cfg("silent")) })
	t.Run("handler panics", func(t *testing.T) { handlerPanics(t, cfg("panicking")) })
	t.Run("too many check-backs", func(t *testing.T) { tooManyCheckbacks(t, cfg("flooded")) })
	t.Run("broker killed and restarted", func(t *testing.T) { brokerKilled(t, cfg("killed"), stack) })
	t.Run("broker paused", func(t *testing.T) { brokerPaused(t, cfg("paused"), stack) })
	t.Run("name server killed and restarted", func(t *testing.T) { nameserverKilled(t, cfg("names"), stack) })
}

func checkbackIsAnswered(t *testing.T, cfg Config) {
	asked := make(collector, 100)
	c := startClient(t, cfg, asked.handle)
	topic, broker := newTopic(t, c, 4), anyBroker(t, c)
	sent := sendHalf(t, c, broker, topic, 2)
	cb := asked.next(t, sent.UniqKey)
	if cb.Broker != broker || cb.Topic != topic || cb.Group != cfg.Group || cb.Message.QueueID != 2 || string(cb.Message.Body) != "body" {
		t.Errorf("got %+v", cb)
	}
	if cb.CommitLogOffset == sent.CommitLogOffset {
		t.Errorf("asked about the half message itself, not a copy")
	}
	if err := c.EndTransaction(t.Context(), broker, answerOf(cb, Commit)); err != nil {
		t.Fatal(err)
	}
	assertQueue(t, c, topic, 2, 1)
	if s := c.Stats(); s.Checkbacks == 0 || s.CheckbacksDropped != 0 {
		t.Errorf("got %+v", s)
	}
}

// The broker asks a process that was killed and started again, although the process sends nothing: its heartbeat is
// enough.
func checkbackWithoutTraffic(t *testing.T, cfg Config) {
	before := startClient(t, cfg, nil)
	topic, broker := newTopic(t, before, 1), anyBroker(t, before)
	sent := sendHalf(t, before, broker, topic, 0)
	if err := before.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := make(collector, 100)
	c := startClient(t, cfg, asked.handle)
	cb := asked.next(t, sent.UniqKey)
	if err := c.EndTransaction(t.Context(), broker, answerOf(cb, Rollback)); err != nil {
		t.Fatal(err)
	}
}

func handlerPanics(t *testing.T, cfg Config) {
	asked, calls := make(collector, 100), new(atomic.Int64)
	cfg.CheckbackLimit = 1
	c := startClient(t, cfg, func(ctx context.Context, cb Checkback) {
		if calls.Add(1) == 1 {
			panic("on purpose")
		}
		asked.handle(ctx, cb)
	})
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	sent := sendHalf(t, c, broker, topic, 0)
	cb := asked.next(t, sent.UniqKey)
	end(t, c, broker, topic, SendResult{UniqKey: cb.UniqKey, CommitLogOffset: cb.CommitLogOffset, QueueOffset: cb.HalfQueueOffset}, Rollback)
}

// When all handlers are busy and no more check-backs may wait, the connection must still carry replies.
func tooManyCheckbacks(t *testing.T, cfg Config) {
	cfg.CheckbackLimit, cfg.CheckbackQueued = 1, 1
	release := make(chan struct{})
	c := startClient(t, cfg, func(context.Context, Checkback) { <-release })
	defer close(release)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	for range 5 {
		sendHalf(t, c, broker, topic, 0)
	}
	await.Success(t, 30*time.Second, func() error {
		if s := c.Stats(); s.CheckbacksDropped == 0 {
			return fmt.Errorf("none dropped: %+v", s)
		}
		return nil
	})
	if err := c.Ping(t.Context(), broker); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func brokerKilled(t *testing.T, cfg Config, stack *devstack.Stack) {
	asked := make(collector, 100)
	c := startClient(t, cfg, asked.handle)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	undecided := sendHalf(t, c, broker, topic, 0)
	pauseBroker(t, c, stack)
	waiting := make(pending, 1)
	go func() {
		_, err := c.Send(context.Background(), broker, half(topic, 0, "killed"))
		waiting <- err
	}()
	awaitSent(t, c, broker)
	stack.Broker(0).Kill()
	waiting.want(t, ErrReplyMissing)
	begin := time.Now()
	_, err := c.Send(t.Context(), broker, half(topic, 0, "down"))
	if !errors.Is(err, ErrNotSent) || time.Since(begin) > time.Second {
		t.Errorf("after %v got %v, want ErrNotSent at once", time.Since(begin), err)
	}
	if s := c.Status(); s.Brokers[0].Connected || s.Brokers[0].Ready() {
		t.Errorf("got %+v, want the broker disconnected", s.Brokers[0])
	}
	restart(t, stack.Broker(0))
	awaitReady(t, c)
	cb := asked.next(t, undecided.UniqKey) // because of the heartbeat after the reconnect
	if err := c.EndTransaction(t.Context(), broker, answerOf(cb, Commit)); err != nil {
		t.Fatal(err)
	}
}

// pauseBroker returns when the broker does not answer any more, because a signal takes a moment to stop all threads.
func pauseBroker(t *testing.T, c *Client, stack *devstack.Stack) {
	t.Helper()
	stack.Broker(0).Pause()
	await.Success(t, 10*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := c.Ping(ctx, anyBroker(t, c)); err == nil {
			return errors.New("the paused broker still answers")
		}
		return nil
	})
}

// awaitSent waits until a call's request was written.
func awaitSent(t *testing.T, c *Client, broker string) {
	t.Helper()
	conn, err := (*c.links.Load())[broker].conn()
	if err != nil {
		t.Fatal(err)
	}
	await.Success(t, 30*time.Second, func() error {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		for _, ca := range conn.pending {
			if !ca.taken {
				return errors.New("a call is still queued")
			}
		}
		if len(conn.pending) == 0 {
			return errors.New("no call is waiting")
		}
		return nil
	})
}

func restart(t *testing.T, p *devstack.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// A paused broker does not read its socket. Once the socket is full, an END_TRANSACTION waits in the client, and must
// not be written after its time limit. So the first half message must stay invisible when the broker wakes up.
func brokerPaused(t *testing.T, cfg Config, stack *devstack.Stack) {
	cfg.WriteTimeout, cfg.AckTimeout = time.Minute, time.Minute
	c := startClient(t, cfg, nil)
	topic, broker := newTopic(t, c, 2), anyBroker(t, c)
	late, early := sendHalf(t, c, broker, topic, 0), sendHalf(t, c, broker, topic, 1)
	pauseBroker(t, c, stack)
	defer stack.Broker(0).Resume()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	full := make(chan error, 8)
	for range cap(full) {
		go func() {
			_, err := c.Send(ctx, broker, &SendRequest{Topic: topic, Body: make([]byte, 3<<20)})
			full <- err
		}()
	}
	awaitPending(t, c, broker, cap(full)) // 24 MiB: more than the kernel buffers for a socket
	ends := make(pending, 1)
	e := endRequest(topic, late, Commit)
	e.WriteBefore = time.Now().Add(300 * time.Millisecond)
	go func() { ends <- c.EndTransaction(ctx, broker, e) }()
	<-time.After(400 * time.Millisecond) // the broker sleeps past the limit
	stack.Broker(0).Resume()
	ends.want(t, ErrNotSent, ErrWriteBefore)
	for range cap(full) {
		if err := <-full; err != nil && !IsCode(err, CodeSystemBusy) {
			t.Errorf("large message: %v", err)
		}
	}
	await.Success(t, 10*time.Second, func() error { return c.EndTransaction(ctx, broker, endRequest(topic, early, Commit)) })
	assertQueue(t, c, topic, 1, 1)
	if got := query(t, c, broker, topic, late.UniqKey, time.Now().Add(-time.Hour)); len(got) != 0 {
		t.Errorf("the late commit was executed: %+v", got)
	}
}

// awaitPending waits until that many calls are written or queued.
func awaitPending(t *testing.T, c *Client, broker string, n int) {
	t.Helper()
	conn, err := (*c.links.Load())[broker].conn()
	if err != nil {
		t.Fatal(err)
	}
	await.Success(t, 10*time.Second, func() error {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if len(conn.pending) != n {
			return fmt.Errorf("%d calls are waiting, want %d", len(conn.pending), n)
		}
		return nil
	})
}

func nameserverKilled(t *testing.T, cfg Config, stack *devstack.Stack) {
	c := startClient(t, cfg, nil)
	topic, broker := newTopic(t, c, 1), anyBroker(t, c)
	stack.Namesrv().Kill()
	await.Success(t, 10*time.Second, func() error {
		if c.Status().NameserverErr == nil {
			return errors.New("the name server's absence goes unnoticed")
		}
		return nil
	})
	if _, err := c.Route(t.Context(), topic); err != nil {
		t.Errorf("known route: %v", err)
	}
	if _, err := c.Route(t.Context(), "unknown"); err == nil || IsCode(err, CodeTopicNotExist) {
		t.Errorf("unknown route: got %v, want an error of the connection", err)
	}
	sent := sendHalf(t, c, broker, topic, 0)
	end(t, c, broker, topic, sent, Commit)
	watched, stop := c.watchRoute(topic)
	restart(t, stack.Namesrv())
	await.Success(t, 10*time.Second, func() error { return c.Status().NameserverErr })
	await.Success(t, 10*time.Second, func() error { // the broker has registered
		masters, err := c.names.fetchMasters(t.Context())
		if err == nil && len(masters) == 0 {
			err = errors.New("the name server knows no broker")
		}
		return err
	})
	stop()
	if lost := <-watched; lost > 0 {
		t.Errorf("a name server that had just started made the client forget a topic: %d times seen", lost)
	}
	newTopic(t, c, 1)
	awaitReady(t, c)
}

// watchRoute counts how often the topic's route is not in memory, until stopped.
func (c *Client) watchRoute(topic string) (lost chan int, stop func()) {
	lost, done := make(chan int, 1), make(chan struct{})
	go func() {
		count := 0
		for {
			select {
			case <-done:
				lost <- count
				return
			case <-time.After(5 * time.Millisecond):
			}
			if (*c.routes.Load())[topic] == nil {
				count++
			}
		}
	}()
	return lost, func() { close(done) }
}

// sendHalf sends a half message, and repeats that when the machine is too busy.
func sendHalf(t *testing.T, c *Client, broker, topic string, queue int) (sent SendResult) {
	t.Helper()
	await.Success(t, 10*time.Second, func() (err error) {
		sent, err = c.Send(t.Context(), broker, half(topic, queue, "body"))
		return err
	})
	return sent
}
