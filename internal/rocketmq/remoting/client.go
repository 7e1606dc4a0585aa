package remoting

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Config has a client's settings. Nameservers and Group are required. Every other zero value is replaced by the default
// given here.
type Config struct {
	Nameservers []string // host:port; tried in turn
	Group       string   // producer group, used by no other service
	ClientID    string   // unique per process; default address@pid#random
	AccessKey   string   // with SecretKey: requests are signed
	SecretKey   string
	Codec       *Codec // of request headers; default CodecBinary
	Logger      *slog.Logger

	DialTimeout     time.Duration // toolPatience
	ReplyTimeout    time.Duration // of calls whose context has no deadline; toolPatience
	WriteTimeout    time.Duration // after which a socket that takes no bytes is given up; toolPatience
	AckTimeout      time.Duration // TCP_USER_TIMEOUT, on Linux; toolPatience
	RefreshEvery    time.Duration // of routes and of the brokers' list; 10 s
	HeartbeatEvery  time.Duration // 10 s
	MaxQueuedBytes  int           // waiting to be written, per connection; 64 MiB
	CheckbackLimit  int           // check-backs handled at a time; 16
	CheckbackQueued int           // that wait; more are dropped, because the broker asks again; 4096
}

// toolPatience is each timeout of a client that sets none. Tools and tests do that; the service sets all, because its promises
// depend on them.
const toolPatience = 5 * time.Second

func (cfg *Config) setDefaults() error {
	if len(cfg.Nameservers) == 0 || cfg.Group == "" {
		return fmt.Errorf("%w: name servers and a producer group are required", ErrInvalid)
	}
	if (cfg.AccessKey == "") != (cfg.SecretKey == "") {
		return fmt.Errorf("%w: access key and secret key come together", ErrInvalid)
	}
	if cfg.ClientID == "" {
		cfg.ClientID = fmt.Sprintf("%s@%d#%s", localIPv4(), os.Getpid(), rand.Text())
	}
	if cfg.Codec == nil {
		codec := CodecBinary
		cfg.Codec = &codec
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, timeout := range []*time.Duration{&cfg.DialTimeout, &cfg.ReplyTimeout, &cfg.WriteTimeout, &cfg.AckTimeout} {
		setDefault(timeout, toolPatience)
	}
	setDefault(&cfg.RefreshEvery, 10*time.Second)
	setDefault(&cfg.HeartbeatEvery, 10*time.Second)
	setDefault(&cfg.MaxQueuedBytes, 64<<20)
	setDefault(&cfg.CheckbackLimit, 16)
	setDefault(&cfg.CheckbackQueued, 4096)
	return nil
}

func setDefault[T int | time.Duration](value *T, def T) {
	if *value <= 0 {
		*value = def
	}
}

// Client talks to one RocketMQ cluster: to its name servers, and to all its
// master brokers, each over one connection. All methods are safe for concurrent
// use.
type Client struct {
	cfg        Config
	log        *slog.Logger
	opts       *connOptions
	names      *nameservers
	heartbeat  *request
	counters   counters
	checkbacks *checkbacks

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	refresh chan struct{}

	fetching singleflight.Group
	routes   atomic.Pointer[map[string]*Route] // replaced, never changed
	links    atomic.Pointer[map[string]*link]  // by broker name; replaced, never changed
	mu       sync.Mutex                        // guards their replacement, and the fields below
	vanished map[share]time.Time               // since when name servers miss a broker's share of a topic
	started  bool
	closed   bool
}

// New prepares a client; Start connects it.
func New(cfg Config) (*Client, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, log: cfg.Logger, refresh: make(chan struct{}, 1), vanished: make(map[share]time.Time)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.checkbacks = newCheckbacks(cfg.CheckbackLimit, cfg.CheckbackQueued, cfg.Logger)
	c.opts = &connOptions{
		codec: *cfg.Codec, dialTimeout: cfg.DialTimeout, replyTimeout: cfg.ReplyTimeout, writeTimeout: cfg.WriteTimeout, ackTimeout: cfg.AckTimeout,
		maxQueued: cfg.MaxQueuedBytes, onRequest: c.onRequest, counters: &c.counters,
	}
	if cfg.AccessKey != "" {
		c.opts.credentials = &credentials{accessKey: cfg.AccessKey, secretKey: cfg.SecretKey}
	}
	c.names = newNameservers(cfg.Nameservers, c.opts, cfg.DialTimeout)
	c.heartbeat = heartbeatRequest(cfg.ClientID, cfg.Group)
	c.routes.Store(&map[string]*Route{})
	c.links.Store(&map[string]*link{})
	return c, nil
}

func heartbeatRequest(clientID, group string) *request {
	type producer struct {
		GroupName string `json:"groupName"`
	}
	body, _ := json.Marshal(struct { // strings only: cannot fail
		ClientID  string     `json:"clientID"`
		Producers []producer `json:"producerDataSet"`
		Consumers []string   `json:"consumerDataSet"`
	}{clientID, []producer{{group}}, []string{}})
	return &request{op: "heartbeat", code: codeHeartbeat, body: body}
}

// ClientID returns the name under which brokers know this client.
func (c *Client) ClientID() string { return c.cfg.ClientID }

// Group returns the producer group.
func (c *Client) Group() string { return c.cfg.Group }

// Start finds the master brokers and connects to them; the background keeps them connected until Close. Start returns
// after the first attempt at each, or when ctx ends. It is no error if no name server or broker can be reached yet;
// Status shows that. Call OnCheckback before.
func (c *Client) Start(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	first := make(chan struct{})
	c.loops.Go(func() { c.refreshLoop(first) })
	if !waitFor(ctx, first) {
		return nil
	}
	for _, l := range *c.links.Load() {
		waitFor(ctx, l.settled)
	}
	return nil
}

func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.closed {
		return fmt.Errorf("%w: a client starts once", ErrInvalid)
	}
	c.started = true
	c.checkbacks.start(c.ctx)
	return nil
}

func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close unregisters this producer from all brokers, waits for running check-back handlers, and closes all connections.
// ctx bounds the waiting. The error says which of this failed; everything is closed in any case.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	err := errors.Join(c.unregister(ctx), c.checkbacks.drain(ctx))
	c.cancel()
	c.loops.Wait()
	for _, l := range *c.links.Load() {
		l.stop()
	}
	c.names.close()
	return err
}

// unregister removes this producer from all connected brokers, so that they send check-backs to other members of the
// group from now on.
func (c *Client) unregister(ctx context.Context) error {
	req := &request{op: "unregister", code: codeUnregister, header: fieldList{
		{"clientID", c.cfg.ClientID}, {"producerGroup", c.cfg.Group},
	}}
	links := maps.Clone(*c.links.Load())
	errs := make(chan error, len(links))
	for _, l := range links {
		go func() {
			conn, err := l.conn()
			if err != nil {
				errs <- nil // not connected
				return
			}
			_, err = callConn(ctx, conn, req, time.Time{})
			errs <- err
		}()
	}
	var failed error
	for range links {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// callConn sends a request and waits. An answer other than success becomes a BrokerError.
func callConn(ctx context.Context, conn *conn, req *request, writeBefore time.Time) (Frame, error) {
	reply, err := conn.call(ctx, req, writeBefore)
	if err != nil {
		return Frame{}, err
	}
	return reply, answer(req.op, conn.addr, &reply)
}

// callBroker is callConn for the broker with this name.
func (c *Client) callBroker(ctx context.Context, broker string, req *request, writeBefore time.Time) (Frame, error) {
	l := (*c.links.Load())[broker]
	if l == nil {
		c.refreshSoon()
		return Frame{}, notSent(req.op, broker, ErrUnknownBroker)
	}
	conn, err := l.conn()
	if err != nil {
		return Frame{}, notSent(req.op, l.addr, err)
	}
	return callConn(ctx, conn, req, writeBefore)
}
