package rocketmq

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	liberrors "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"github.com/txsvc/txsvc/internal/pause"
	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// noCompression is the body size beyond which the library compresses: larger than any that the broker accepts.
const noCompression = 1 << 30

// library sends half messages through rocketmq-client-go. Its plain producer stores a half message when the properties say so,
// and returns the coordinates.
type library struct {
	config      Config
	nameservers *hostNames

	mu       sync.Mutex
	producer rocketmq.Producer // started at the first use
}

func newLibrary(c Config) *library {
	silence()
	return &library{config: c, nameservers: &hostNames{names: c.Nameservers}}
}

// started returns the producer. Its group is not that of the half messages (property PGROUP), to which brokers send check-backs,
// because the library would receive check-backs and never answer them.
func (l *library) started() (rocketmq.Producer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.producer != nil {
		return l.producer, nil
	}
	p, err := rocketmq.NewProducer(
		producer.WithGroupName(l.config.Group+"-library"),
		producer.WithInstanceName(remoting.UniqKey()),
		producer.WithNsResolver(l.nameservers),
		producer.WithRetry(0), // a repetition would store the same UNIQ_KEY twice
		producer.WithSendMsgTimeout(l.config.Timing.AnswerWithin),
		producer.WithCompressMsgBodyOverHowmuch(noCompression),
		producer.WithCredentials(primitive.Credentials{AccessKey: l.config.AccessKey, SecretKey: l.config.SecretKey}),
		producer.WithQueueSelector(chosenQueue{}),
	)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting rocketmq-client-go: %w", errors.Join(err, l.nameservers.err()))
	}
	l.producer = p
	return p, nil
}

// chosenQueue returns the queue that the message names and ignores the library's own list, which is up to 30 s old. The broker
// refuses a queue that its topic does not have.
type chosenQueue struct{}

func (chosenQueue) Select(m *primitive.Message, _ []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	return m.Queue
}

func (l *library) sendHalf(ctx context.Context, m *txn.Message) (remoting.SendResult, error) {
	p, err := l.started()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return remoting.SendResult{}, fmt.Errorf("%w: %w", remoting.ErrNotSent, err)
	}
	message := primitive.NewMessage(m.Topic, m.Body)
	message.Queue = &primitive.MessageQueue{Topic: m.Topic, BrokerName: m.Queue.Broker, QueueId: m.Queue.ID}
	for _, p := range halfProperties(m) {
		message.WithProperty(p.Name, p.Value)
	}
	message.WithProperty(remoting.PropUniqKey, m.UniqKey)
	message.WithProperty(remoting.PropPrepared, "true")
	message.WithProperty(remoting.PropGroup, l.config.Group)
	for try := 1; ; try++ {
		// The request's context is not passed on: one that ends during the write breaks the connection that all sends share.
		result, err := p.SendSync(context.Background(), message)
		if err == nil {
			return libraryResult(result)
		}
		if err = libraryError(err); try == placeTries || !errors.Is(err, errNoPlace) || !pause.For(ctx, placePause) {
			return remoting.SendResult{}, err
		}
	}
}

// When the first messages of a process come at once, the library knows the topic before it knows the broker's address. It sends
// nothing then, and knows the address a moment later.
const (
	placeTries = 10
	placePause = 20 * time.Millisecond
)

var (
	// errNoRoute says that the library did not find the topic, and sent nothing.
	errNoRoute = errors.New("rocketmq-client-go has no route")
	// errNoPlace says that the library does not know where the topic's broker is, and sent nothing.
	errNoPlace = errors.New("rocketmq-client-go does not know the broker's address")
)

// libraryError turns an error of the library into one of the wire. Without a connection nothing was sent, nor was anything to a
// topic or broker that the library does not know. All other errors that are no broker's answer leave open whether the message
// is stored.
func libraryError(err error) error {
	if answer, ok := libraryAnswer(err.Error()); ok {
		return answer
	}
	unknown := strings.HasSuffix(err.Error(), "route info not found")
	network, ok := errors.AsType[*net.OpError](err)
	switch {
	case unknown && strings.HasPrefix(err.Error(), "the topic="):
		return fmt.Errorf("%w: %w", errNoRoute, err)
	case unknown:
		return fmt.Errorf("%w: %w: %w", remoting.ErrNotSent, errNoPlace, err)
	case ok && network.Op == "dial", errors.Is(err, liberrors.ErrNotRunning), errors.Is(err, liberrors.ErrService):
		return fmt.Errorf("%w: %w", remoting.ErrNotSent, err)
	default:
		return fmt.Errorf("%w: %w", remoting.ErrReplyMissing, err)
	}
}

// libraryAnswer reads the broker's answer from the text of the library's error, because it has no other form.
func libraryAnswer(text string) (error, bool) {
	text, isAnswer := strings.CutPrefix(text, "CODE: ")
	code, remark, _ := strings.Cut(text, ", DESC: ")
	n, err := strconv.Atoi(code)
	return &remoting.BrokerError{Op: "send", Code: n, Remark: remark}, isAnswer && err == nil
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

func (l *library) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.producer != nil {
		_ = l.producer.Shutdown()
	}
}

// silence stops the library's log, which would hold bodies. The process has one such logger.
var silence = sync.OnceFunc(func() { rlog.SetLogger(quiet{}) })

// quiet drops the library's logs.
type quiet struct{}

func (quiet) Debug(string, map[string]any)   {}
func (quiet) Info(string, map[string]any)    {}
func (quiet) Warning(string, map[string]any) {}
func (quiet) Error(string, map[string]any)   {}
func (quiet) Fatal(string, map[string]any)   {}
func (quiet) Level(string)                   {}
func (quiet) OutputPath(string) error        { return nil }
