package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRecordedQueryReply(t *testing.T) {
	for dir := range codecDirs {
		reply := recorded(t, dir+"/query-reply")
		messages, err := DecodeMessages(reply.Body)
		if err != nil || len(messages) != 1 {
			t.Fatalf("%s: got %d messages, %v", dir, len(messages), err)
		}
		m := messages[0]
		if m.Topic != "recorded" || m.QueueID != 1 || m.QueueOffset != 0 || string(m.Body) != "body" || m.Compressed {
			t.Errorf("%s: got %+v", dir, m)
		}
		if m.StoreHost.Addr().String() != "127.0.0.1" || m.StoredAt < m.BornAt || m.BornAt == 0 {
			t.Errorf("%s: got host %v, stored %d, born %d", dir, m.StoreHost, m.StoredAt, m.BornAt)
		}
		if m.Properties.Get(PropKeys) != "k1 ümläut" || m.Properties.Get("quote") != `a "b" \ c` {
			t.Errorf("%s: got properties %q", dir, m.Properties)
		}
	}
}

func TestRecordedCheckback(t *testing.T) {
	for dir := range codecDirs {
		frame := recorded(t, dir+"/check-back")
		if frame.Code != codeCheckTransaction || !frame.isOneWay() || frame.isReply() {
			t.Errorf("%s: got code %d, flag %d", dir, frame.Code, frame.Flag)
		}
		cb, err := decodeCheckback(&conn{broker: "by connection", addr: "h:1"}, &frame)
		if err != nil {
			t.Fatal(err)
		}
		if cb.Broker != "broker-a" || cb.Addr != "h:1" || cb.Topic != "recorded" || cb.Group != "recorder" || cb.Times != 1 {
			t.Errorf("%s: got %+v", dir, cb)
		}
		host, offset, err := parseOffsetMsgID(cb.OffsetMsgID)
		if err != nil || offset != cb.CommitLogOffset || host != cb.Message.StoreHost {
			t.Errorf("%s: message id %s says %v at %d, %v; got %+v", dir, cb.OffsetMsgID, host, offset, err, cb)
		}
		if cb.UniqKey == "" || cb.UniqKey != cb.TransactionID || cb.HalfQueueOffset != cb.Message.QueueOffset || string(cb.Message.Body) != "body" {
			t.Errorf("%s: got %+v", dir, cb)
		}
	}
}

// stored encodes a message the way a broker does.
func stored(magic uint32, m Message) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint32(b, magic)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(m.QueueID))
	b = binary.BigEndian.AppendUint32(b, uint32(m.Flag))
	b = binary.BigEndian.AppendUint64(b, uint64(m.QueueOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(m.CommitLogOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(m.SysFlag))
	b = binary.BigEndian.AppendUint64(b, uint64(m.BornAt))
	b = append(b, m.BornHost.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(m.BornHost.Port()))
	b = binary.BigEndian.AppendUint64(b, uint64(m.StoredAt))
	b = append(b, m.StoreHost.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(m.StoreHost.Port()))
	b = binary.BigEndian.AppendUint32(b, uint32(m.ReconsumeTimes))
	b = binary.BigEndian.AppendUint64(b, uint64(m.PreparedOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Body)))
	b = append(b, m.Body...)
	if magic == magicV2 {
		b = append(b, byte(len(m.Topic)>>8))
	}
	b = append(b, byte(len(m.Topic)))
	b = append(b, m.Topic...)
	properties := m.Properties.Encode()
	b = binary.BigEndian.AppendUint16(b, uint16(len(properties)))
	b = append(b, properties...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

func sample() Message {
	return Message{
		Topic: "topic", QueueID: 3, QueueOffset: 1 << 40, CommitLogOffset: 1 << 41, SysFlag: sysBornHostV6, Flag: -1, BornAt: 1, StoredAt: 2,
		BornHost: netip.MustParseAddrPort("[2001:db8::1]:7"), StoreHost: netip.MustParseAddrPort("10.1.2.3:10911"), ReconsumeTimes: 4, PreparedOffset: 5,
		Properties: Properties{{PropUniqKey, "key"}, {"ä", "世"}}, Body: []byte("body"),
	}
}

func TestMessageLayouts(t *testing.T) {
	long := sample()
	long.Topic = strings.Repeat("t", 300)
	for name, row := range map[string]struct {
		magic uint32
		m     Message
	}{"short topic": {magicV1, sample()}, "long topic": {magicV2, long}} {
		got, err := DecodeMessages(append(stored(row.magic, row.m), stored(row.magic, row.m)...))
		if diff := cmp.Diff([]Message{row.m, row.m}, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestCompressedBodies(t *testing.T) {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		method     int32
		compressed bool
		body       string
	}{
		"zlib by default": {zlibDefault, false, "content"},
		"zlib":            {zlibExplicit, false, "content"},
		"LZ4":             {1 << 8, true, packed.String()},
		"Zstandard":       {2 << 8, true, packed.String()},
	} {
		m := sample()
		m.SysFlag |= sysCompressed | row.method
		m.Body = packed.Bytes()
		got, _, err := decodeMessage(stored(magicV1, m))
		if err != nil || got.Compressed != row.compressed || string(got.Body) != row.body {
			t.Errorf("%s: got %q, compressed %t, %v", name, got.Body, got.Compressed, err)
		}
	}
	m := sample()
	m.SysFlag |= sysCompressed
	if _, _, err := decodeMessage(stored(magicV1, m)); !errors.Is(err, ErrMessage) {
		t.Errorf("no zlib at all: got %v, want ErrMessage", err)
	}
}

func TestInflatingIsLimited(t *testing.T) {
	var bomb bytes.Buffer
	z := zlib.NewWriter(&bomb)
	for range maxFrame>>20 + 1 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	m := sample()
	m.SysFlag |= sysCompressed
	m.Body = bomb.Bytes()
	if _, _, err := decodeMessage(stored(magicV1, m)); !errors.Is(err, ErrMessage) {
		t.Errorf("got %v, want ErrMessage", err)
	}
}

func TestMessageCutShort(t *testing.T) {
	whole := stored(magicV1, sample())
	for n := 1; n < len(whole); n++ {
		cut := bytes.Clone(whole[:n])
		if n >= 4 {
			binary.BigEndian.PutUint32(cut, uint32(n))
		}
		if _, err := DecodeMessages(cut); !errors.Is(err, ErrMessage) {
			t.Errorf("%d of %d bytes: got %v, want ErrMessage", n, len(whole), err)
		}
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add(stored(magicV1, sample()))
	f.Add(stored(magicV2, sample()))
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := DecodeMessages(b)
		if err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("got %v, want ErrMessage", err)
		}
		for i := range messages {
			messages[i].OffsetMsgID()
		}
	})
}

func TestPropertiesSurviveTheRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[ -~äöü世🐘]{1,20}`)
	rapid.Check(t, func(t *rapid.T) {
		want := Properties(rapid.SliceOf(rapid.Custom(func(t *rapid.T) Property {
			return Property{text.Draw(t, "name"), text.Draw(t, "value")}
		})).Draw(t, "properties"))
		if err := want.check(); err != nil {
			t.Fatal(err)
		}
		got := ParseProperties(want.Encode())
		if diff := cmp.Diff(want, got, cmp.Transformer("List", func(p Properties) []Property { return append([]Property{}, p...) })); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestParseProperties(t *testing.T) {
	got := ParseProperties("a\x01b\x02\x02nothing\x02\x01novalue\x02noname\x01\x02a\x01c\x01d\x02last\x01one")
	want := Properties{{"a", "b"}, {"a", "c\x01d"}, {"last", "one"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Get("a") != "c\x01d" || got.Get("b") != "" {
		t.Errorf("got %q and %q", got.Get("a"), got.Get("b"))
	}
}

func FuzzParseProperties(f *testing.F) {
	f.Add("a\x01b\x02")
	f.Fuzz(func(t *testing.T, s string) {
		once := ParseProperties(s)
		twice := ParseProperties(once.Encode())
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("(-once +twice):\n%s", diff)
		}
	})
}
