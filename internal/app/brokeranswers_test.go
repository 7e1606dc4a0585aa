package app

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/messages"
	"github.com/txsvc/txsvc/internal/rocketmq"
	"github.com/txsvc/txsvc/internal/routing"
	"github.com/txsvc/txsvc/internal/selector"
	"github.com/txsvc/txsvc/internal/txn"
)

// The requests to which a brokerWithOneAnswer says something else (RequestCode of RocketMQ).
const (
	requestHeartbeat = 34
	requestRoute     = 105
	requestCluster   = 106
	requestSend      = 310
)

// brokerWithOneAnswer is a name server and a broker with the topic "notes", and one answer to all messages.
type brokerWithOneAnswer struct {
	listener net.Listener
	code     int // -1: none
	remark   string
	fields   map[string]string
	away     bool // the broker's address leads nowhere
}

func (b *brokerWithOneAnswer) serve() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for in := bufio.NewReader(c); b.answer(in, c) == nil; {
			}
		}()
	}
}

// answer reads one request, whose header is RocketMQ's binary one, and answers in JSON.
func (b *brokerWithOneAnswer) answer(in io.Reader, out io.Writer) error {
	var prefix [8]byte
	if _, err := io.ReadFull(in, prefix[:]); err != nil {
		return err
	}
	rest := make([]byte, binary.BigEndian.Uint32(prefix[:4])-4)
	if _, err := io.ReadFull(in, rest); err != nil {
		return err
	}
	request, opaque := int(binary.BigEndian.Uint16(rest)), binary.BigEndian.Uint32(rest[5:])
	reply := map[string]any{"language": "JAVA", "version": 475, "opaque": opaque, "flag": 1, "code": 0}
	addr := b.listener.Addr().String()
	if b.away {
		addr = "127.0.0.1:1"
	}
	broker := fmt.Sprintf(`{"cluster":"c","brokerName":"broker-a","brokerAddrs":{"0":%q}}`, addr)
	body := ""
	switch request {
	case requestHeartbeat:
	case requestRoute:
		body = `{"brokerDatas":[` + broker + `],"queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6}]}`
	case requestCluster:
		body = `{"brokerAddrTable":{"broker-a":` + broker + `}}`
	case requestSend:
		if b.code < 0 {
			return nil
		}
		reply["code"], reply["remark"], reply["extFields"] = b.code, b.remark, b.fields
	default:
		reply["code"] = 3 // REQUEST_CODE_NOT_SUPPORTED
	}
	header, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	_, err = out.Write(append(append(frame, header...), body...))
	return err
}

// untouched is what of the database a request needs that ends before its local transaction; undone, what of the deliveries.
type untouched struct{ txn.Store }

func (untouched) Begin() time.Time { return time.Now() }
func (untouched) Settle(time.Time) {}

type undone struct{ txn.Deliveries }

func (undone) Find(string) *txn.Attempt { return nil }
func (undone) Alive(string) bool        { return true }

// apiOver makes all layers between HTTP and the wire.
func apiOver(t *testing.T, b *brokerWithOneAnswer) nethttp.Handler {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	b.listener = listener
	go b.serve()
	timing, log, registry := txn.DefaultTiming(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	timing.BusyPause, timing.AnswerWithin = time.Millisecond, 200*time.Millisecond
	mq, err := rocketmq.New(rocketmq.Config{
		Nameservers: []string{listener.Addr().String()}, Group: "g", Transport: rocketmq.TransportNative, Timing: timing, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mq.Close(context.Background()) })
	if err := mq.Start(t.Context(), []string{"notes"}, nil); err != nil {
		t.Fatal(err)
	}
	hash, err := selector.New(selector.Spec{Type: selector.Default})
	if err != nil {
		t.Fatal(err)
	}
	notes := txn.Destination{Topic: "notes", Selector: hash}
	topics, kinds := map[string]txn.Destination{"notes": notes}, []*txn.Kind{{Name: "note", Destination: notes, Timeout: time.Second}}
	router := routing.New(routing.Config{Topics: topics, Kinds: kinds}, mq, nil, registry, log)
	metrics := txn.NewMetrics(registry)
	config := messages.DefaultConfig()
	config.Timing = timing
	sender := messages.New(config, topics, router, mq, registry, metrics.QueueMessages, log)
	t.Cleanup(func() { _ = sender.Close(context.Background()) })
	flow := txn.NewService(txn.Config{MaxInFlight: 8, Timing: timing}, kinds, router, mq, untouched{}, undone{}, metrics, log)
	handler, err := http.New(http.Config{
		Transactions: flow, Messages: sender, Routes: router, Kinds: kinds, Gatherer: registry, Registerer: registry, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// TestBrokerAnswersOverHTTP: what brokers say, in their own words, and what becomes of it through all layers: the status, the
// code and the pointer that the client of a message sees, and those that the client of a transaction sees.
func TestBrokerAnswersOverHTTP(t *testing.T) {
	t.Parallel()
	const unavailable, invalid, large, unconfirmed = "503 broker_unavailable", "400 invalid_request", "413 payload_too_large", "504 unconfirmed"
	stored := map[string]string{"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0", "transactionId": "x"}
	for name, tc := range map[string]struct {
		broker       brokerWithOneAnswer
		message, txn string
	}{
		"compacted topic":   {brokerWithOneAnswer{code: 13, remark: "Required message key is missing"}, invalid + " /keys", invalid + " /keys"},
		"size":              {brokerWithOneAnswer{code: 13, remark: "maybe msg body or properties length not matched."}, large, large},
		"time":              {brokerWithOneAnswer{code: 13, remark: "timer message illegal, the delay time should not be bigger"}, invalid + " /deliver_at", invalid + " /deliver_at"},
		"illegal":           {brokerWithOneAnswer{code: 13}, invalid + " ", invalid + " "},
		"no timer":          {brokerWithOneAnswer{code: 1, remark: "accurate timer message is not enabled"}, invalid + " /deliver_at", invalid + " /deliver_at"},
		"busy timer":        {brokerWithOneAnswer{code: 1, remark: "timer message is under flow control"}, unavailable, unavailable},
		"large batch":       {brokerWithOneAnswer{code: 1, remark: "java.lang.RuntimeException: message body size exceeded"}, large, large},
		"replicas":          {brokerWithOneAnswer{code: 1, remark: "in-sync replicas not enough"}, unavailable, unavailable},
		"ACL of 4.9":        {brokerWithOneAnswer{code: 1, remark: "AclException: No default permission"}, unavailable, unavailable},
		"failure":           {brokerWithOneAnswer{code: 1, remark: "UNKNOWN_ERROR"}, unconfirmed, unavailable},
		"busy":              {brokerWithOneAnswer{code: 2, remark: "broker busy, start flow control for a while"}, unavailable, unavailable},
		"flow control":      {brokerWithOneAnswer{code: 215}, unavailable, unavailable},
		"disk full":         {brokerWithOneAnswer{code: 14, remark: "the broker's disk is full"}, unavailable, unavailable},
		"no half messages":  {brokerWithOneAnswer{code: 16, remark: "the broker[a] sending transaction message is forbidden"}, unavailable, unavailable},
		"not permitted":     {brokerWithOneAnswer{code: 16, remark: "the topic[notes] sending message is forbidden"}, unavailable, unavailable},
		"no topic":          {brokerWithOneAnswer{code: 17, remark: "topic[notes] not exist"}, unavailable, unavailable},
		"no queue":          {brokerWithOneAnswer{code: 29, remark: "request queueId[9] is illegal"}, unavailable, unavailable},
		"static topic":      {brokerWithOneAnswer{code: 501}, unavailable, unavailable},
		"unknown code":      {brokerWithOneAnswer{code: 4711}, unconfirmed, unavailable},
		"no answer":         {brokerWithOneAnswer{code: -1}, unconfirmed, unavailable},
		"no broker":         {brokerWithOneAnswer{away: true}, unavailable, unavailable},
		"not flushed":       {brokerWithOneAnswer{code: 10, fields: stored}, "201 ", unavailable},
		"slave not in time": {brokerWithOneAnswer{code: 12, fields: stored}, "201 ", unavailable},
		"stored without id": {brokerWithOneAnswer{code: 0, fields: map[string]string{"queueId": "0"}}, unconfirmed, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := tc.broker
			handler := apiOver(t, &broker)
			for _, request := range []struct{ path, body, want, promise string }{
				{"/v1/messages", `{"topic":"notes","shard_key":"k","body":{}}`, tc.message, "nothing was sent"},
				{"/v1/transactions", `{"kind":"note","shard_key":"k","payload":{}}`, tc.txn, "nothing was changed"},
			} {
				r := httptest.NewRequestWithContext(t.Context(), nethttp.MethodPost, request.path, strings.NewReader(request.body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				var problem struct {
					Code, Detail string
					Errors       []struct{ Pointer string }
					MessageIDs   []string `json:"message_ids"`
				}
				if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprintf("%d %s", w.Code, problem.Code)
				if len(problem.Errors) > 0 {
					got += " " + problem.Errors[0].Pointer
				}
				if got != request.want {
					t.Errorf("%s: got %s, want %s: %s", request.path, got, request.want, problem.Detail)
				}
				if (w.Code == nethttp.StatusServiceUnavailable) != strings.HasSuffix(problem.Detail, request.promise) ||
					(w.Code == nethttp.StatusServiceUnavailable) != (w.Header().Get("Retry-After") != "") {
					t.Errorf("%s: got %q with Retry-After %q, want a 503 to promise that %s, and nothing else to", request.path, problem.Detail,
						w.Header().Get("Retry-After"), request.promise)
				}
				if (w.Code == nethttp.StatusGatewayTimeout) != (problem.Code != "" && len(problem.MessageIDs) == 1) {
					t.Errorf("%s: got the message ids %q", request.path, problem.MessageIDs)
				}
			}
		})
	}
}
