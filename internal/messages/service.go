package messages

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// Broker is RocketMQ, as far as sending needs it.
type Broker interface {
	// NewUniqKey returns a fresh UNIQ_KEY in RocketMQ's standard form.
	NewUniqKey() string
	// Publish stores messages of one topic and queue, all of them or none, and waits for the broker's answer. Errors are
	// *txn.SendError.
	Publish(ctx context.Context, list []txn.Message) (txn.SendStatus, error)
	// PublishOneWay hands the messages to the connection. Errors are *txn.SendError.
	PublishOneWay(list []txn.Message) error
	// Probe asks the broker for a sign of life.
	Probe(ctx context.Context, broker string) error
	// Refusals returns the reasons, each with its field, for which the broker of the message's queue is known to refuse the
	// message, or not to retain it.
	Refusals(ctx context.Context, m *txn.Message) []*txn.SendError
	// Size is how many bytes of the broker's limit a message takes, with its properties.
	Size(m *txn.Message) int
}

// Router picks queues, and refreshes its list of a topic's queues when asked to.
type Router interface {
	txn.Router
	// Refresh asks where the topic's queues are now; see txn.QueueWatch.
	Refresh(ctx context.Context, topic string)
}

// Config bounds the sending.
type Config struct {
	MaxInFlight     int // requests that wait for the broker; more are answered "overloaded"
	MaxWaiting      int // messages of mode async in memory; more are answered "overloaded"
	MaxWaitingBytes int // the same, in bytes
	Timing          txn.Timing
}

// DefaultConfig returns the limits used when nothing is configured.
func DefaultConfig() Config {
	return Config{MaxInFlight: 1024, MaxWaiting: 10_000, MaxWaitingBytes: 64 << 20, Timing: txn.DefaultTiming()}
}

// Service sends messages. It is safe for concurrent use.
type Service struct {
	config   Config
	topics   map[string]txn.Destination
	names    []string
	router   Router
	broker   Broker
	metrics  *metrics
	slots    chan struct{}
	backlogs *backlogs
}

// New returns a Service for the given topics. queues counts visible messages by topic, broker and queue.
func New(config Config, topics map[string]txn.Destination, router Router, broker Broker, reg prometheus.Registerer, queues *prometheus.CounterVec, log *slog.Logger) *Service {
	s := &Service{
		config: config, topics: topics, names: slices.Sorted(maps.Keys(topics)), router: router, broker: broker,
		metrics: newMetrics(reg, queues), slots: make(chan struct{}, config.MaxInFlight),
	}
	s.metrics.expect(s.names, config)
	s.backlogs = newBacklogs(config, broker, s.metrics, log)
	return s
}

// Receipt is the answer about messages that were accepted.
type Receipt struct {
	Mode       Mode
	Status     string // of the broker; ACCEPTED where it was not asked or has not answered yet
	Advice     string // what the status means for the caller; empty when there is nothing to do
	Topic      string
	ShardKey   string
	Route      txn.Route
	MessageIDs []string // RocketMQ's (UNIQ_KEY), in the order of the request
}

// Send sends the messages of a request, as its mode promises. Errors are *txn.Error; with txn.CodeUnconfirmed the messages may
// be stored.
func (s *Service) Send(ctx context.Context, r Request) (*Receipt, error) {
	if r.Mode == "" {
		r.Mode = ModeSync
	}
	d, ok := s.topics[r.Topic]
	if !ok {
		return nil, topicError(r.Topic, s.names)
	}
	if err := r.check(time.Now()); err != nil {
		return nil, err
	}
	list := r.list(s.broker.NewUniqKey)
	size, err := r.checkSize(list, s.broker.Size)
	if err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return nil, overloaded("more messages are being sent than this service takes on; nothing was sent")
	}
	budget := s.config.Timing.MessageBudget()
	by := time.Now().Add(budget.Route)
	routing, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	route, err := s.route(routing, d, &r)
	if err != nil {
		return nil, txn.Undone(err, nothingSent)
	}
	if err := s.place(routing, &r, list, route.Queue); err != nil {
		return nil, err
	}
	receipt := &Receipt{Mode: r.Mode, Topic: r.Topic, ShardKey: r.ShardKey, Route: route, MessageIDs: ids(list)}
	switch r.Mode {
	case ModeAsync:
		receipt.Status, receipt.Advice = statusAccepted, adviceAsync
		err = s.backlogs.add(list, size)
	case ModeOneWay:
		receipt.Status, receipt.Advice = statusAccepted, adviceOneWay
		err = s.oneWay(list)
	default:
		err = s.sync(ctx, d, &r, receipt, list, by.Add(budget.Half))
	}
	if err != nil {
		return nil, err
	}
	return receipt, nil
}

func ids(list []txn.Message) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].UniqKey
	}
	return ids
}

// place gives the messages their queue, and refuses messages that its broker is known not to accept, because the modes that do
// not wait for the broker could not report it afterwards.
func (s *Service) place(ctx context.Context, r *Request, list []txn.Message, q txn.Queue) error {
	var wrong []txn.FieldError
	for i := range list {
		list[i].Queue = q
		for _, refusal := range s.broker.Refusals(ctx, &list[i]) {
			wrong = append(wrong, refusal.Invalid(r.at(i)))
		}
	}
	if len(wrong) > 0 {
		return txn.Invalid(wrong...)
	}
	return nil
}

// route picks one queue for all messages. A selector sees the body of a batch's first message. Where the selector has lanes, all
// other messages have to be of the same lane, because a batch goes to one queue and no lane may be ignored silently.
func (s *Service) route(ctx context.Context, d txn.Destination, r *Request) (txn.Route, error) {
	in := txn.SelectorInput{ShardKey: r.ShardKey, Arg: r.SelectorArg, Payload: r.Messages[0].payload(), Header: r.Header}
	route, err := s.router.Route(ctx, d, in)
	if err != nil || route.Lane == "" {
		return route, inBody(err, r.at(0))
	}
	for i := range r.Messages[1:] {
		payload := r.Messages[i+1].payload()
		if bytes.Equal(payload, in.Payload) {
			continue
		}
		in.Payload = payload
		other, err := s.router.Route(ctx, d, in)
		if err != nil {
			return route, inBody(err, r.at(i+1))
		}
		if other.Lane != route.Lane {
			return route, txn.Invalid(txn.FieldError{
				Pointer: r.at(i + 1), Message: "is of the lane " + other.Lane + ", the first message of " + route.Lane + ": a batch goes to one queue",
			})
		}
	}
	return route, nil
}

// inBody moves errors that a selector reports about the payload to the body of the message at the pointer.
func inBody(err error, at string) error {
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || !slices.ContainsFunc(e.Fields, func(f txn.FieldError) bool { return strings.HasPrefix(f.Pointer, "/payload") }) {
		return err
	}
	fields := slices.Clone(e.Fields)
	for i := range fields {
		if rest, ok := strings.CutPrefix(fields[i].Pointer, "/payload"); ok {
			fields[i].Pointer = at + "/body" + rest
		}
	}
	return txn.Invalid(fields...)
}

func (m *Message) payload() []byte {
	if !m.JSON {
		return nil
	}
	return m.Body
}

// sync waits for the broker's answer. When the queue may be gone, the topic's queues are refreshed, and if the key has another
// queue then, the messages go there: once.
func (s *Service) sync(ctx context.Context, d txn.Destination, r *Request, receipt *Receipt, list []txn.Message, by time.Time) error {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), by) // what is written cannot be taken back
	defer cancel()
	var status txn.SendStatus
	route, err := txn.SendRouted(receipt.Route, func(route txn.Route) (err error) {
		if route.Queue != list[0].Queue {
			if err := s.place(ctx, r, list, route.Queue); err != nil {
				return err
			}
		}
		return s.config.Timing.Send(by, func() error {
			status, err = publishOnce(ctx, s.broker, s.config.Timing.AnswerWithin, list)
			return err
		}, func(err error) bool {
			return txn.IsUnsent(err) && txn.IsWorthRepeating(err)
		})
	}, func(error) (txn.Route, error) {
		s.refresh(ctx, d.Topic)
		return s.route(ctx, d, r)
	})
	s.metrics.count(ModeSync, list, outcome(status, err), err == nil)
	if err != nil {
		return coded(err, list)
	}
	receipt.Route, receipt.Status, receipt.Advice = route, string(status), advice(status)
	return nil
}

func (s *Service) refresh(ctx context.Context, topic string) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timing.RefreshWithin)
	defer cancel()
	s.router.Refresh(ctx, topic)
}

func publishOnce(ctx context.Context, broker Broker, timeout time.Duration, list []txn.Message) (txn.SendStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return broker.Publish(ctx, list)
}

func (s *Service) oneWay(list []txn.Message) error {
	err := s.broker.PublishOneWay(list)
	s.metrics.count(ModeOneWay, list, outcome(statusAccepted, err), false)
	if err != nil {
		return coded(err, list)
	}
	return nil
}

// Close accepts no more messages of mode async, and waits until those that wait are sent or ctx ends. The messages that still
// wait then are lost, and the error says how many.
func (s *Service) Close(ctx context.Context) error { return s.backlogs.drain(ctx) }
