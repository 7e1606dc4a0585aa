//go:build record

package remoting

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestRecord writes frames of a real broker and name server into testdata, for TestRecordedFrames. Both have to run
// already, the broker with transactionCheckInterval=1000 and transactionTimeOut=1000; for RECORD_AS=binary both with
// -Drocketmq.serialize.type=ROCKETMQ:
//
//	RECORD_AS=json RECORD_NAMESERVER=127.0.0.1:9876 go test -tags record -run TestRecord .
func TestRecord(t *testing.T) {
	nameserver := os.Getenv("RECORD_NAMESERVER")
	c := startClient(t, Config{Nameservers: []string{nameserver}, Group: "recorder"}, nil)
	topic := "recorded"
	if err := c.CreateTopic(t.Context(), topic, 2); err != nil {
		t.Fatal(err)
	}
	route, err := c.Route(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil { // check-backs go to the recording connection
		t.Fatal(err)
	}
	at := &recorder{t: t, dir: filepath.Join("testdata", os.Getenv("RECORD_AS"))}
	broker, names := at.dial(route.Queues[0].Addr), at.dial(nameserver)
	name := route.Queues[0].Broker
	at.call("heartbeat-reply", broker, heartbeatRequest("recorder@1", "recorder"))
	send := func() *request {
		return &request{op: "send", code: codeSendV2, body: []byte("body"), header: &sendHeader{
			group: "recorder", broker: name, m: half(topic, 1, ""), uniqKey: UniqKey(), born: time.Now().UnixMilli(),
		}}
	}
	h := send()
	reply := at.call("send-reply", broker, h)
	sent, err := decodeSendResult("send", &reply, h.header.(*sendHeader).uniqKey)
	if err != nil {
		t.Fatal(err)
	}
	end := func(e *EndRequest) *request {
		return &request{op: "end", code: codeEndTransaction, header: &endHeader{"recorder", name, e}}
	}
	at.call("end-reply", broker, end(endRequest(topic, sent, Commit)))
	wrong := endRequest(topic, sent, Commit)
	wrong.HalfQueueOffset += 7
	at.call("end-refusal", broker, end(wrong))
	at.call("max-offset-reply", broker, &request{code: codeMaxOffset, header: fieldList{{"topic", topic}, {"queueId", "1"}}})
	query := fieldList{
		{"topic", topic}, {"key", sent.UniqKey}, {"maxNum", "32"}, {"beginTimestamp", "0"},
		{"endTimestamp", "9223372036854775807"}, {"_UNIQUE_KEY_QUERY", "true"},
	}
	at.call("route-reply", names, &request{code: codeRoute, header: fieldList{{"topic", topic}}})
	at.call("route-refusal", names, &request{code: codeRoute, header: fieldList{{"topic", "nowhere"}}})
	at.call("cluster-info-reply", names, &request{code: codeClusterInfo})
	at.call("query-refusal", broker, &request{code: codeQuery, header: append(query[:1:1], append(fieldList{{"key", "none"}}, query[2:]...)...)})
	at.call("query-reply", broker, &request{code: codeQuery, header: query})
	at.call("", broker, send())
	at.checkback(broker)
}

// recorder stores all bytes that arrive on its connections.
type recorder struct {
	t      *testing.T
	dir    string
	mu     sync.Mutex
	opaque int32
}

type recordedConn struct {
	net.Conn
	seen bytes.Buffer
}

func (r *recordedConn) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.seen.Write(b[:n])
	return n, err
}

func (r *recorder) dial(addr string) *recordedConn {
	socket, err := net.Dial("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = socket.Close() })
	return &recordedConn{Conn: socket}
}

// call sends one request at a time, so the next frame that arrives is its reply.
func (r *recorder) call(name string, on *recordedConn, req *request) Frame {
	r.opaque++
	w := fieldWriter{codec: CodecBinary}
	if err := appendFrame(&w, r.opaque, req); err != nil {
		r.t.Fatal(err)
	}
	if _, err := on.Write(w.buf); err != nil {
		r.t.Fatal(err)
	}
	return r.next(name, on)
}

func (r *recorder) next(name string, on *recordedConn) Frame {
	on.seen.Reset()
	if err := on.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	frame, err := newFrameReader(on).next()
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	if name != "" {
		whole := on.seen.Bytes() // and perhaps the beginning of the next one
		r.write(name, whole[:4+binary.BigEndian.Uint32(whole)])
	}
	return frame
}

func (r *recorder) checkback(on *recordedConn) {
	for {
		if frame := r.next("check-back", on); frame.Code == codeCheckTransaction && !frame.isReply() {
			return
		}
	}
}

func (r *recorder) write(name string, b []byte) {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, name+".bin"), b, 0o644); err != nil {
		r.t.Fatal(err)
	}
}
