package rocketmq

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// libraryTimeout bounds one send; the library repeats nothing (WithRetry(0)): a repetition would store the same UNIQ_KEY
// twice, and each attempt of ours is a new message.
const libraryTimeout = 3 * time.Second

// noCompression is a body size beyond which the library would compress: none that the broker accepts.
const noCompression = 1 << 30

// library sends half messages through rocketmq-client-go: a plain producer stores one when the message says so in its
// properties, and returns its coordinates.
type library struct {
	producer rocketmq.Producer
	group    string
}

// newLibrary starts a producer. Its own group differs from the half messages' (property PGROUP), which brokers go by when
// they ask back: the library would take check-backs and never answer them.
func newLibrary(c Config) (*library, error) {
	rlog.SetLogger(quiet{}) // it would log bodies
	addresses, err := resolve(c.Nameservers)
	if err != nil {
		return nil, err
	}
	p, err := rocketmq.NewProducer(
		producer.WithGroupName(c.Group+"-library"),
		producer.WithInstanceName(remoting.UniqKey()),
		producer.WithNsResolver(primitive.NewPassthroughResolver(addresses)),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(libraryTimeout),
		producer.WithCompressMsgBodyOverHowmuch(noCompression),
		producer.WithCredentials(primitive.Credentials{AccessKey: c.AccessKey, SecretKey: c.SecretKey}),
		producer.WithQueueSelector(chosenQueue{}),
	)
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	return &library{producer: p, group: c.Group}, nil
}

// resolve looks host names up: the library takes addresses only.
func resolve(nameservers []string) ([]string, error) {
	var addresses []string
	for _, ns := range nameservers {
		host, port, err := net.SplitHostPort(ns)
		if err != nil {
			return nil, fmt.Errorf("name server %s: %w", ns, err)
		}
		ips, err := net.LookupHost(host)
		if err != nil {
			return nil, fmt.Errorf("name server %s: %w", ns, err)
		}
		for _, ip := range ips {
			if net.ParseIP(ip).To4() != nil {
				addresses = append(addresses, net.JoinHostPort(ip, port))
			}
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no name server has an IPv4 address, which rocketmq-client-go needs")
	}
	return addresses, nil
}

// chosenQueue returns the queue that the message names, if the library knows it.
type chosenQueue struct{}

// Select returns nil when the queue is not in the library's route, which fails the send before anything is written.
func (chosenQueue) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	for _, q := range queues {
		if q.BrokerName == m.Queue.BrokerName && q.QueueId == m.Queue.QueueId {
			return q
		}
	}
	return nil
}

func (l *library) sendHalf(_ context.Context, m *txn.Message) (remoting.SendResult, error) {
	message := primitive.NewMessage(m.Topic, m.Body)
	message.Queue = &primitive.MessageQueue{Topic: m.Topic, BrokerName: m.Queue.Broker, QueueId: m.Queue.ID}
	for _, p := range halfProperties(m) {
		message.WithProperty(p.Name, p.Value)
	}
	message.WithProperty(remoting.PropUniqKey, m.UniqKey)
	message.WithProperty(remoting.PropPrepared, "true")
	message.WithProperty(remoting.PropGroup, l.group)
	// Not the request's context: one that ends during the write breaks the connection that all sends share.
	result, err := l.producer.SendSync(context.Background(), message)
	if err != nil {
		return remoting.SendResult{}, libraryError(err)
	}
	return libraryResult(result)
}

// libraryError reads the broker's answer out of the library's error text, its only form; any other error leaves it open
// whether the message is stored.
func libraryError(err error) error {
	text, ok := strings.CutPrefix(err.Error(), "CODE: ")
	if ok {
		code, remark, _ := strings.Cut(text, ", DESC: ")
		if n, convErr := strconv.Atoi(strings.TrimSpace(code)); convErr == nil {
			return &remoting.BrokerError{Op: "send", Code: n, Remark: remark}
		}
	}
	return fmt.Errorf("%w: %w", remoting.ErrReplyMissing, err)
}

var libraryStatus = map[primitive.SendStatus]remoting.SendStatus{
	primitive.SendOK: remoting.SendOK, primitive.SendFlushDiskTimeout: remoting.FlushDiskTimeout,
	primitive.SendFlushSlaveTimeout: remoting.FlushSlaveTimeout, primitive.SendSlaveNotAvailable: remoting.SlaveNotAvailable,
}

func libraryResult(r *primitive.SendResult) (remoting.SendResult, error) {
	status, ok := libraryStatus[r.Status]
	if !ok || len(r.OffsetMsgID) < 16 {
		return remoting.SendResult{}, fmt.Errorf("%w: status %d, message id %q", remoting.ErrReplyMissing, r.Status, r.OffsetMsgID)
	}
	raw, err := hex.DecodeString(r.OffsetMsgID[len(r.OffsetMsgID)-16:])
	if err != nil {
		return remoting.SendResult{}, fmt.Errorf("%w: message id: %w", remoting.ErrReplyMissing, err)
	}
	var offset int64
	for _, b := range raw {
		offset = offset<<8 | int64(b)
	}
	return remoting.SendResult{
		Status: status, UniqKey: r.MsgID, OffsetMsgID: r.OffsetMsgID, TransactionID: r.TransactionID,
		QueueID: r.MessageQueue.QueueId, QueueOffset: r.QueueOffset, CommitLogOffset: offset,
	}, nil
}

func (l *library) close() { _ = l.producer.Shutdown() }

// quiet drops the library's logs.
type quiet struct{}

func (quiet) Debug(string, map[string]any)   {}
func (quiet) Info(string, map[string]any)    {}
func (quiet) Warning(string, map[string]any) {}
func (quiet) Error(string, map[string]any)   {}
func (quiet) Fatal(string, map[string]any)   {}
func (quiet) Level(string)                   {}
func (quiet) OutputPath(string) error        { return nil }
