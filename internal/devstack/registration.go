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
)

// Request codes of RocketMQ's remoting protocol (RequestCode.java).
const (
	codeBrokerRuntimeInfo = 28
	codeClusterInfo       = 106
)

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 16 << 20

// brokerReady holds when this life of the broker has said that it is up, which it
// does after it has reported itself to the name server, when the name server knows
// it at its address, and when it answers itself. The first condition is there
// because the name server may for a moment still know the life before.
func (s *Stack) brokerReady(ctx context.Context, i int) error {
	name, addr := BrokerName(i), fmt.Sprintf("127.0.0.1:%d", s.ports.Brokers[i])
	if !strings.Contains(s.brokers[i].said(), "boot success") {
		return errors.New("it has not said that it is up")
	}
	info, err := clusterInfo(ctx, s.Nameservers()[0])
	if err != nil {
		return fmt.Errorf("asking the name server: %w", err)
	}
	if !strings.Contains(info, `"`+name+`"`) || !strings.Contains(info, `"`+addr+`"`) {
		return fmt.Errorf("the name server does not know %s at %s", name, addr)
	}
	if _, err := request(ctx, addr, codeBrokerRuntimeInfo); err != nil {
		return fmt.Errorf("asking it: %w", err)
	}
	return nil
}

// clusterInfo is the name server's list of brokers, in fastjson's notation, which
// has unquoted integer keys and is therefore only searched.
func clusterInfo(ctx context.Context, nameserver string) (string, error) {
	return request(ctx, nameserver, codeClusterInfo)
}

// request sends one request without fields and returns the body of the reply.
// A frame is: length of the rest, length of the header, JSON header, body.
func request(ctx context.Context, addr string, code int) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	header := fmt.Appendf(nil, `{"code":%d,"language":"GO","version":0,"opaque":1,"flag":0}`, code)
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	if _, err := conn.Write(append(frame, header...)); err != nil {
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
		return "", fmt.Errorf("answered with code %d: %s", header.Code, header.Remark)
	}
	return string(rest[headerLength:]), nil
}
