package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/failpoint"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// Transport is the way in which half messages are sent.
type Transport string

// The transports.
const (
	TransportNative  Transport = "native"
	TransportLibrary Transport = "library"
)

// Config are a client's settings; all but the keys and the logger are required.
type Config struct {
	Nameservers []string // host:port
	Group       string   // producer group, of this service alone
	Transport   Transport
	AccessKey   string
	SecretKey   string
	Timing      txn.Timing
	Logger      *slog.Logger
}

// halfSender stores one half message, and returns its coordinates and the broker's status.
type halfSender interface {
	sendHalf(ctx context.Context, m *txn.Message) (remoting.SendResult, error)
	close()
}

// Client is a connection to one RocketMQ cluster. It is safe for concurrent use.
type Client struct {
	remote *remoting.Client
	half   halfSender
	log    *slog.Logger
	timing txn.Timing

	breakers sync.Map // by broker

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	loops  sync.WaitGroup

	mu     sync.RWMutex
	queues map[string]queueList // by topic

	settings   settings
	halfTopics sync.Map // by broker: the topic in which its half messages were last seen

	readingsMu sync.Mutex
	readings   map[readingOf]*reading
}

// CheckbackHandler answers one check-back, or leaves it unanswered, so that the broker asks again.
type CheckbackHandler func(ctx context.Context, m txn.Message, h txn.Half)

// New returns a client; Start connects it.
func New(c Config) (*Client, error) {
	remote, err := remoting.New(remoting.Config{
		Nameservers: c.Nameservers, Group: c.Group, AccessKey: c.AccessKey, SecretKey: c.SecretKey, Logger: c.Logger,
		DialTimeout: c.Timing.DialWithin, ReplyTimeout: c.Timing.ReplyWithin, WriteTimeout: c.Timing.ArriveWithin, AckTimeout: c.Timing.ArriveWithin,
	})
	if err != nil {
		return nil, err
	}
	client := &Client{remote: remote, log: c.Logger, timing: c.Timing, queues: make(map[string]queueList), readings: make(map[readingOf]*reading)}
	client.settings.known = make(map[topicAt]setting)
	client.ctx, client.cancel = context.WithCancel(context.Background())
	switch c.Transport {
	case TransportNative:
		client.half = native{remote}
	case TransportLibrary:
		client.half = newLibrary(c)
	default:
		return nil, fmt.Errorf("%q is not a transport: choose native or library", c.Transport)
	}
	return client, nil
}

// Start connects to all masters, and asks for the routes of the topics. Check shows servers that cannot be reached yet; they are
// no error. Check-backs go to handle.
func (c *Client) Start(ctx context.Context, topics []string, handle CheckbackHandler) error {
	if handle != nil {
		c.remote.OnCheckback(func(ctx context.Context, cb remoting.Checkback) {
			m, h := checkback(&cb)
			handle(ctx, m, h)
		})
	}
	if err := c.remote.Start(ctx); err != nil {
		return err
	}
	for _, topic := range topics {
		if _, err := c.remote.Route(ctx, topic); err != nil {
			c.log.WarnContext(ctx, "topic has no route yet", "topic", topic, "error", err)
		}
	}
	return nil
}

// Close unregisters from all brokers and closes the connections.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.cancel() // no trial begins any more
	c.mu.Unlock()
	c.loops.Wait()
	c.half.close()
	return c.remote.Close(ctx)
}

// NewUniqKey returns a fresh UNIQ_KEY; see txn.Broker.
func (c *Client) NewUniqKey() string { return remoting.UniqKey() }

// SendHalf stores one half message; see txn.Broker.
func (c *Client) SendHalf(ctx context.Context, m txn.Message) (txn.Half, error) {
	if err := c.admit(m.Queue.Broker); err != nil {
		return txn.Half{}, err
	}
	return c.storeHalf(ctx, m)
}

func (c *Client) storeHalf(ctx context.Context, m txn.Message) (txn.Half, error) {
	sent := time.Now()
	result, err := c.half.sendHalf(ctx, &m)
	if err = c.judge(&m, sent, result.Status, err); err != nil {
		return txn.Half{}, err
	}
	h := txn.Half{
		UniqKey: m.UniqKey, Broker: m.Queue.Broker, CommitLogOffset: result.CommitLogOffset, QueueOffset: result.QueueOffset,
		TransactionID: result.TransactionID,
	}
	if result.Status != remoting.SendOK {
		if err := c.takeBack(ctx, h); err != nil {
			c.log.InfoContext(ctx, "rollback not confirmed, left to a check-back", "message_id", h.UniqKey, "error", err)
		}
		return txn.Half{}, storedWith(result.Status, txn.Unsent)
	}
	return h, nil
}

// takeBack rolls a half message back, also after the caller's time, which a broker that waits for its slaves uses up.
func (c *Client) takeBack(ctx context.Context, h txn.Half) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timing.TakeBackWithin)
	defer cancel()
	return c.End(ctx, h, txn.DecisionRollback, time.Time{})
}

// End sends END_TRANSACTION; see txn.Broker.
func (c *Client) End(ctx context.Context, h txn.Half, d txn.Decision, writeBefore time.Time) error {
	decision := remoting.Rollback
	if d == txn.DecisionCommit {
		decision = remoting.Commit
	}
	request := &remoting.EndRequest{
		UniqKey: h.UniqKey, TransactionID: h.TransactionID, CommitLogOffset: h.CommitLogOffset, HalfQueueOffset: h.QueueOffset,
		Decision: decision, FromCheckback: h.FromCheck, WriteBefore: writeBefore,
	}
	if failpoint.Armed("end-sent") && d == txn.DecisionCommit {
		c.sendAndDie("end-sent", func() { _ = c.remote.EndTransaction(ctx, h.Broker, request) })
	}
	if h.FromCheck && d == txn.DecisionCommit {
		if err := c.confirmHalf(ctx, h); err != nil {
			return err
		}
	}
	return endError(c.remote.EndTransaction(ctx, h.Broker, request))
}

// confirmHalf makes sure that the half message at the offsets is the right one. The broker does not compare ids, and after it
// has lost its store another message may be there. Only old half messages are confirmed, because those of a request were
// stored a moment ago.
func (c *Client) confirmHalf(ctx context.Context, h txn.Half) error {
	m, err := c.remote.View(ctx, h.Broker, halfTopic, h.CommitLogOffset)
	if remoting.IsCode(err, remoting.CodeSystemError) { // nothing can be read there
		return halfGone(err)
	}
	if err != nil {
		return questionError(err, "looking for the half message")
	}
	if m.UniqKey() != h.UniqKey {
		return halfGone(errors.New("another message is at the offset of the half message"))
	}
	return nil
}

// sendAndDie sends a request, and ends the process before the reply.
func (c *Client) sendAndDie(point string, send func()) {
	before := c.remote.Stats().FramesWritten
	go send()
	for c.remote.Stats().FramesWritten == before {
		time.Sleep(time.Millisecond)
	}
	failpoint.Hit(point)
}

// Probe asks the broker for a sign of life; see delivery.Broker.
func (c *Client) Probe(ctx context.Context, broker string) error {
	return questionError(c.remote.Ping(ctx, broker), "asking for a sign of life")
}

// Brokers returns the names of the masters that are known, sorted.
func (c *Client) Brokers() []string {
	status := c.remote.Status()
	names := make([]string, len(status.Brokers))
	for i, b := range status.Brokers {
		names[i] = b.Name
	}
	return names
}

// CreateTopic makes a topic with the given number of queues on every master, and waits until the topic has a route.
func (c *Client) CreateTopic(ctx context.Context, topic string, queues int) error {
	return c.remote.CreateTopic(ctx, topic, queues)
}
