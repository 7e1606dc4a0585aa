package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// ErrMessage means that the bytes are not a stored message.
var ErrMessage = errors.New("malformed message")

// Bits of a message's sysFlag (MessageSysFlag of RocketMQ).
const (
	sysCompressed  = 1 << 0
	sysPrepared    = 1 << 2
	sysBornHostV6  = 1 << 4
	sysStoreHostV6 = 1 << 5
	sysCompression = 7 << 8 // 0 and 3: zlib, 1: LZ4, 2: Zstandard
	zlibDefault    = 0 << 8
	zlibExplicit   = 3 << 8
)

// Magic numbers of the two layouts, which differ in the topic's length.
const (
	magicV1 = 0xdaa320a7
	magicV2 = 0xdaa320ab
)

// Message is a message as a broker stores it.
type Message struct {
	Topic           string
	QueueID         int32
	QueueOffset     int64
	CommitLogOffset int64
	SysFlag         int32
	Flag            int32
	BornAt          int64 // milliseconds of the producer's clock
	StoredAt        int64 // milliseconds of the broker's clock
	BornHost        netip.AddrPort
	StoreHost       netip.AddrPort
	ReconsumeTimes  int32
	PreparedOffset  int64 // of a committed message: the half message's commit-log offset
	Properties      Properties
	Body            []byte
	// Compressed says that Body is still compressed, by a method other than zlib.
	Compressed bool
}

// UniqKey returns the message id that the producer gave.
func (m *Message) UniqKey() string { return m.Properties.Get(PropUniqKey) }

// OffsetMsgID returns the broker's id of the message: its store host and
// commit-log offset.
func (m *Message) OffsetMsgID() string {
	ip := m.StoreHost.Addr().AsSlice()
	b := binary.BigEndian.AppendUint32(ip, uint32(m.StoreHost.Port()))
	b = binary.BigEndian.AppendUint64(b, uint64(m.CommitLogOffset))
	return strings.ToUpper(hex.EncodeToString(b))
}

// parseOffsetMsgID is the inverse of OffsetMsgID.
func parseOffsetMsgID(id string) (host netip.AddrPort, offset int64, err error) {
	var raw [16 + 4 + 8]byte
	n := len(id) / 2
	if n != 4+4+8 && n != len(raw) {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: message id %q", ErrMessage, id)
	}
	if _, err := hex.Decode(raw[:n], []byte(id)); err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: message id %q: %w", ErrMessage, id, err)
	}
	ip, _ := netip.AddrFromSlice(raw[:n-12])
	port := binary.BigEndian.Uint32(raw[n-12:])
	return netip.AddrPortFrom(ip, uint16(port)), int64(binary.BigEndian.Uint64(raw[n-8:])), nil
}

// DecodeMessages reads messages one after the other, as they are in the replies to queries and pulls.
func DecodeMessages(b []byte) ([]Message, error) {
	var list []Message
	for len(b) > 0 {
		m, size, err := decodeMessage(b)
		if err != nil {
			return list, err
		}
		list = append(list, m)
		b = b[size:]
	}
	return list, nil
}

// decodeMessage reads the first message of b, and returns its length as well. Body is a part of b unless it had to be
// inflated.
func decodeMessage(b []byte) (Message, int, error) {
	in := messageReader{b: b}
	size := int(in.u32())
	if in.bad || size < 8 || size > len(b) {
		return Message{}, 0, fmt.Errorf("%w: size %d, got %d bytes", ErrMessage, size, len(b))
	}
	in.b = b[4:size]
	magic := in.u32()
	if magic != magicV1 && magic != magicV2 {
		return Message{}, 0, fmt.Errorf("%w: magic %#x", ErrMessage, magic)
	}
	m := in.fixedPart()
	m.Body = in.take(int(in.u32()))
	topicLen := int(in.u8())
	if magic == magicV2 {
		topicLen = topicLen<<8 | int(in.u8())
	}
	m.Topic = string(in.take(topicLen))
	m.Properties = ParseProperties(string(in.take(int(in.u16()))))
	if in.bad {
		return Message{}, 0, fmt.Errorf("%w: cut short", ErrMessage)
	}
	return m, size, m.inflate()
}

// inflate replaces a zlib body by its content.
func (m *Message) inflate() error {
	if m.SysFlag&sysCompressed == 0 {
		return nil
	}
	if method := m.SysFlag & sysCompression; method != zlibDefault && method != zlibExplicit {
		m.Compressed = true
		return nil
	}
	z, err := zlib.NewReader(bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("%w: compressed body: %w", ErrMessage, err)
	}
	body, err := io.ReadAll(io.LimitReader(z, maxFrame+1))
	if err != nil {
		return fmt.Errorf("%w: compressed body: %w", ErrMessage, err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("%w: body inflates to more than %d bytes", ErrMessage, maxFrame)
	}
	m.Body = body
	return nil
}

// messageReader takes big-endian values off the front of b.
type messageReader struct {
	b   []byte
	bad bool
}

// fixedPart reads from the body's checksum to the prepared offset.
func (r *messageReader) fixedPart() (m Message) {
	r.u32() // checksum of the body
	m.QueueID = int32(r.u32())
	m.Flag = int32(r.u32())
	m.QueueOffset = int64(r.u64())
	m.CommitLogOffset = int64(r.u64())
	m.SysFlag = int32(r.u32())
	m.BornAt = int64(r.u64())
	m.BornHost = r.host(m.SysFlag&sysBornHostV6 != 0)
	m.StoredAt = int64(r.u64())
	m.StoreHost = r.host(m.SysFlag&sysStoreHostV6 != 0)
	m.ReconsumeTimes = int32(r.u32())
	m.PreparedOffset = int64(r.u64())
	return m
}

func (r *messageReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *messageReader) host(v6 bool) netip.AddrPort {
	size := 4
	if v6 {
		size = 16
	}
	ip, _ := netip.AddrFromSlice(r.take(size))
	return netip.AddrPortFrom(ip, uint16(r.u32()))
}

func (r *messageReader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *messageReader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *messageReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *messageReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}
