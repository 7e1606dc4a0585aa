package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// recorded returns the only frame in a file that TestRecord wrote.
func recorded(t *testing.T, name string) Frame {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	in := newFrameReader(bytes.NewReader(b))
	frame, err := in.next()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if _, err := in.next(); !errors.Is(err, io.EOF) {
		t.Fatalf("%s: after the frame: got %v, want EOF", name, err)
	}
	return frame
}

// recordedVersion is the ordinal of V5_4_0, whose answers were recorded.
const recordedVersion = 493

// codecDirs has the directories of the broker's answers to the same requests in either codec.
var codecDirs = map[string]Codec{"json": CodecJSON, "binary": CodecBinary}

func TestRecordedFrames(t *testing.T) {
	const faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
	want := map[string]Frame{
		"send-reply":         {Opaque: 2, Flag: flagReply},
		"end-reply":          {Opaque: 3, Flag: flagReply},
		"end-refusal":        {Opaque: 4, Flag: flagReply, Code: 1, Remark: "The transaction state table offset wrong"},
		"max-offset-reply":   {Opaque: 5, Flag: flagReply},
		"route-reply":        {Opaque: 6, Flag: flagReply},
		"route-refusal":      {Opaque: 7, Flag: flagReply, Code: 17, Remark: "No topic route info in name server for the topic: nowhere" + faq},
		"cluster-info-reply": {Opaque: 8, Flag: flagReply},
		"query-refusal":      {Opaque: 9, Flag: flagReply, Code: 22, Remark: "can not find message, maybe time range not correct"},
		"query-reply":        {Opaque: 10, Flag: flagReply},
		"heartbeat-reply":    {Opaque: 1, Flag: flagReply},
	}
	for dir, codec := range codecDirs {
		for name, frame := range want {
			got := recorded(t, dir+"/"+name)
			got.Fields, got.Body, frame.Codec, frame.Version = nil, nil, codec, recordedVersion
			if diff := cmp.Diff(frame, got); diff != "" {
				t.Errorf("%s/%s (-want +got):\n%s", dir, name, diff)
			}
		}
	}
}

func TestRecordedFields(t *testing.T) {
	for dir := range codecDirs {
		send, offset := recorded(t, dir+"/send-reply"), recorded(t, dir+"/max-offset-reply")
		result, err := decodeSendResult("send", &send, "key")
		if err != nil {
			t.Fatal(err)
		}
		if result.QueueID != 1 || result.QueueOffset != 0 || result.CommitLogOffset != 0 || result.StoreHost.Addr().String() != "127.0.0.1" {
			t.Errorf("%s: send reply: got %+v", dir, result)
		}
		if got := offset.Get("offset"); got != "1" {
			t.Errorf("%s: max offset: got %q, want 1", dir, got)
		}
		if got := offset.Get("nothing"); got != "" {
			t.Errorf("%s: missing field: got %q", dir, got)
		}
	}
}

// fields draws a header's values. None is empty, because empty ones are not written.
func fields() *rapid.Generator[[]Field] {
	text := rapid.StringMatching(`[ -~\x00-\x1fäöü世🐘"\\]{1,20}`)
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Field {
		return Field{Key: text.Draw(t, "key"), Value: text.Draw(t, "value")}
	}), 0, 20, func(f Field) string { return f.Key })
}

func TestFramesSurviveTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom([]Codec{CodecJSON, CodecBinary}).Draw(t, "codec")
		want := Frame{
			Codec: codec, Code: int(rapid.Int16().Draw(t, "code")), Opaque: rapid.Int32().Draw(t, "opaque"),
			Flag: rapid.Int32().Draw(t, "flag"), Version: protocolVersion, Fields: fields().Draw(t, "fields"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		w := fieldWriter{codec: codec}
		req := &request{code: want.Code, flag: want.Flag, header: fieldList(want.Fields), body: want.Body}
		if err := appendFrame(&w, want.Opaque, req); err != nil {
			t.Fatal(err)
		}
		got, err := newFrameReader(bytes.NewReader(w.buf)).next()
		if err != nil {
			t.Fatal(err)
		}
		byKey := cmp.Transformer("ByKey", func(list []Field) map[string]string {
			m := make(map[string]string, len(list))
			for _, f := range list {
				m[f.Key] = f.Value
			}
			return m
		})
		empty := cmp.Transformer("Body", func(b []byte) string { return string(b) })
		if diff := cmp.Diff(want, got, byKey, empty); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestMalformedFramesAreRefused(t *testing.T) {
	frame := func(length, mark uint32, rest string) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)
		return append(binary.BigEndian.AppendUint32(b, mark), rest...)
	}
	binaryHeader := func(rest string) []byte {
		header := strings.Repeat("\x00", binaryFixed) + rest
		return frame(uint32(4+len(header)), 1<<24|uint32(len(header)), header)
	}
	for name, b := range map[string][]byte{
		"length below the prefix": frame(3, 0, ""),
		"length above the limit":  frame(maxFrame+1, 0, ""),
		"length negative":         frame(1<<31, 0, ""),
		"header beyond the frame": frame(10, 7, "{}xxxx"),
		"header above the limit":  frame(maxFrame, maxHeader+1, ""),
		"unknown codec":           frame(6, 9<<24|2, "{}"),
		"no JSON":                 frame(6, 2, "xx"),
		"wrong JSON type":         frame(16, 12, `{"code":"x"}`),
		"short binary header":     frame(8, 1<<24|4, "\x00\x00\x00\x00"),
		"remark too long":         binaryHeader("\x00\x00\x00\x09abcd"),
		"remark negative":         binaryHeader("\xff\xff\xff\xffabcd"),
		"fields too long":         binaryHeader("\x00\x00\x00\x00\x00\x00\x00\x02a"),
		"field key too long":      binaryHeader("\x00\x00\x00\x00\x00\x00\x00\x04\x00\x09ab"),
		"field value too long":    binaryHeader("\x00\x00\x00\x00\x00\x00\x00\x07\x00\x01a\x00\x00\x00\x01"),
		"too many fields": binaryHeader("\x00\x00\x00\x00\x00\x00\x60\x06" +
			strings.Repeat("\x00\x00\x00\x00\x00\x00", maxFields+1)),
	} {
		_, err := newFrameReader(bytes.NewReader(b)).next()
		if !errors.Is(err, ErrFrame) {
			t.Errorf("%s: got %v, want ErrFrame", name, err)
		}
	}
}

func TestFramesCutShort(t *testing.T) {
	w := fieldWriter{codec: CodecBinary}
	if err := appendFrame(&w, 1, &request{code: 1, header: fieldList{{"k", "v"}}, body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	for n := range w.buf {
		_, err := newFrameReader(bytes.NewReader(w.buf[:n])).next()
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Errorf("after %d bytes: got %v, want %v", n, err, want)
		}
	}
}

func TestJSONHeaderWithoutFastPath(t *testing.T) {
	header := ` { "code" : 0, "extFields":{"a":"\u00fc\"","b":null,"c":"世"}, "remark":null, "new":[1], "opaque":7, "flag":1}`
	got, err := decodeJSONHeader([]byte(header))
	want := Frame{Codec: CodecJSON, Opaque: 7, Flag: 1, Fields: []Field{{"a", `ü"`}, {"c", "世"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// FuzzFrameReader checks that the reader does not panic, allocates no more than was sent and the limits allow, and that
// a frame that was read is written the same way again.
func FuzzFrameReader(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.bin")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded frames: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := newFrameReader(bytes.NewReader(b))
		for {
			frame, err := in.next()
			if err != nil {
				return
			}
			again := reread(t, frame)
			for _, field := range frame.Fields {
				if field.Value != "" && frame.Codec == CodecBinary && again.Get(field.Key) != frame.Get(field.Key) {
					t.Errorf("field %q: got %q, want %q", field.Key, again.Get(field.Key), frame.Get(field.Key))
				}
			}
			if again.Code != frame.Code || !bytes.Equal(again.Body, frame.Body) {
				t.Errorf("got %+v, want %+v", again, frame)
			}
		}
	})
}

func reread(t *testing.T, frame Frame) Frame {
	t.Helper()
	w := fieldWriter{codec: CodecBinary}
	nonEmpty := make(fieldList, 0, len(frame.Fields))
	for _, field := range frame.Fields {
		if frame.Get(field.Key) != "" {
			nonEmpty = append(nonEmpty, Field{field.Key, frame.Get(field.Key)})
		}
	}
	if err := appendFrame(&w, frame.Opaque, &request{code: int(int16(frame.Code)), header: nonEmpty, body: frame.Body}); err != nil {
		return frame // grew beyond a limit
	}
	again, err := newFrameReader(bytes.NewReader(w.buf)).next()
	if err != nil {
		t.Fatalf("rereading %+v: %v", frame, err)
	}
	again.Code = frame.Code
	return again
}

// FuzzJSONHeader compares the fast path with encoding/json.
func FuzzJSONHeader(f *testing.F) {
	f.Add(`{"code":0,"extFields":{"queueId":"1","remark":null},"flag":1,"language":"JAVA","opaque":2,"remark":"r","serializeTypeCurrentRPC":"JSON","version":493}`)
	f.Add(`{"code":-0,"flag":01,"opaque":--1}`)
	f.Add("{\"remark\":\"\xff\"}")
	f.Fuzz(func(t *testing.T, s string) {
		fast, ok := scanJSONHeader(s)
		if !ok {
			return
		}
		slow, err := unmarshalJSONHeader([]byte(s))
		if err != nil {
			t.Fatalf("%q: the fast path took it, encoding/json does not: %v", s, err)
		}
		values := make(map[string]string)
		for _, field := range fast.Fields {
			values[field.Key] = field.Value
		}
		for _, field := range slow.Fields {
			if values[field.Key] != field.Value {
				t.Errorf("%q: field %q: got %q, want %q", s, field.Key, values[field.Key], field.Value)
			}
		}
		fast.Fields, slow.Fields = nil, nil
		if diff := cmp.Diff(slow, fast); diff != "" {
			t.Errorf("%q (-encoding/json +fast):\n%s", s, diff)
		}
	})
}
