package devstack

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Request codes of RocketMQ's remoting protocol (RequestCode.java).
const (
	codeUpdateBrokerConfig = 25
	codeBrokerRuntimeInfo  = 28
	codeClusterInfo        = 106
)

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 16 << 20

// refusal is a reply with an error code. Its sender is alive.
type refusal struct {
	code   int
	remark string
}

func (r *refusal) Error() string { return fmt.Sprintf("answered with code %d: %s", r.code, r.remark) }

// brokerReady returns nil when this life of the broker has logged that it is up, when the name server knows it at its
// address, and when it answers itself. The first condition is necessary because the name server may still know the life
// before for a moment; the broker logs after it has registered.
func (s *Stack) brokerReady(ctx context.Context, p *Process, name, addr string) error {
	if !p.booted() {
		return errors.New("it has not said that it is up")
	}
	if err := s.registered(ctx, name, addr); err != nil {
		_ = s.remind(ctx, addr) // if this fails, the broker registers within 10 s
		return err
	}
	_, err := request(ctx, addr, codeBrokerRuntimeInfo, "")
	if refused := new(refusal); errors.As(err, &refused) { // access control is on
		return nil
	}
	return err
}

// namesrvReady returns nil when the name server answers and knows every broker that answers.
func (s *Stack) namesrvReady(ctx context.Context) error {
	if _, err := clusterInfo(ctx, s.Nameservers()[0]); err != nil {
		return err
	}
	for i, broker := range s.brokers {
		name, addr := BrokerName(i), s.brokerAddr(i)
		if !broker.booted() || s.registered(ctx, name, addr) == nil {
			continue
		}
		if s.remind(ctx, addr) == nil {
			return s.registered(ctx, name, addr)
		}
	}
	return nil
}

func (p *Process) booted() bool { return strings.Contains(p.said(), "boot success") }

func (s *Stack) brokerAddr(i int) string { return fmt.Sprintf("127.0.0.1:%d", s.ports.Brokers[i]) }

func (s *Stack) registered(ctx context.Context, name, addr string) error {
	info, err := clusterInfo(ctx, s.Nameservers()[0])
	if err != nil {
		return fmt.Errorf("asking the name server: %w", err)
	}
	if !strings.Contains(info, `"`+name+`"`) || !strings.Contains(info, `"`+addr+`"`) {
		return fmt.Errorf("the name server does not know %s at %s", name, addr)
	}
	return nil
}

// remind makes a broker register at the name server now. A broker registers when its permission is set; remind sets it
// to its present value (AdminBrokerProcessor.updateBrokerConfig).
func (s *Stack) remind(ctx context.Context, addr string) error {
	permission := "6" // read and write, the default
	if configured := s.opts.BrokerConfig["brokerPermission"]; configured != "" {
		permission = configured
	}
	_, err := request(ctx, addr, codeUpdateBrokerConfig, "brokerPermission="+permission+"\n")
	return err
}

// clusterInfo returns the name server's list of brokers in fastjson's notation. Callers only search it, because it has
// unquoted integer keys.
func clusterInfo(ctx context.Context, nameserver string) (string, error) {
	return request(ctx, nameserver, codeClusterInfo, "")
}

// replyWithin is how long a reply is waited for: a server that is just starting may drop a request, and callers ask again.
const replyWithin = 5 * time.Second

// request sends one request without fields and returns the body of the reply.
// A frame is: length of the rest, length of the header, JSON header, body.
func request(ctx context.Context, addr string, code int, body string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline := time.Now().Add(replyWithin)
	if whole, ok := ctx.Deadline(); ok && whole.Before(deadline) {
		deadline = whole
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	header := fmt.Appendf(nil, `{"code":%d,"language":"GO","version":0,"opaque":1,"flag":0}`, code)
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(append(frame, header...), body...)
	if _, err := conn.Write(frame); err != nil {
		return "", err
	}
	return readReply(conn)
}

func readReply(r io.Reader) (string, error) {
	var length, headerLength uint32
	if err := binary.Read(r, binary.BigEndian, &length); err != nil {
		return "", err
	}
	if err := binary.Read(r, binary.BigEndian, &headerLength); err != nil {
		return "", err
	}
	if length < 4 || length > maxReply || headerLength > length-4 {
		return "", fmt.Errorf("a reply of %d bytes with a header of %d", length, headerLength)
	}
	rest := make([]byte, length-4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return "", err
	}
	var header struct {
		Code   int    `json:"code"`
		Remark string `json:"remark"`
	}
	if err := json.Unmarshal(rest[:headerLength], &header); err != nil {
		return "", fmt.Errorf("reading the reply's header: %w", err)
	}
	if header.Code != 0 {
		return "", &refusal{code: header.Code, remark: header.Remark}
	}
	return string(rest[headerLength:]), nil
}
