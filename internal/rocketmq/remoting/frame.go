package remoting

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Codec is the encoding of a frame's header. Each frame names its codec. Brokers read both, and write the one that they
// are started with.
type Codec byte

// The two header codecs (SerializeType of RocketMQ).
const (
	CodecJSON   Codec = 0
	CodecBinary Codec = 1
)

// Limits on what is read from a peer. RocketMQ's own decoder stops at 16 MiB;
// an answer of many messages stays far below either.
const (
	maxFrame  = 32 << 20 // bytes after the length word
	maxHeader = 1 << 20
	maxFields = 1 << 12
)

// Bits of a frame's flag.
const (
	flagReply  = 1 << 0
	flagOneWay = 1 << 1
)

// protocolVersion is the ordinal of V5_3_1 in RocketMQ's MQVersion. To newer clients, a stopping server answers GO_AWAY
// (code 1500) instead of the request; this version is new enough for plain JSON in routes (V4_9_4).
const protocolVersion = 475

// languageGo is GO in RocketMQ's LanguageCode.
const languageGo = 9

// Field is one of the named values in a frame's header (extFields).
type Field struct{ Key, Value string }

// Frame is one frame as received.
type Frame struct {
	Codec   Codec
	Code    int // request code, or response code in a reply
	Version int // of the sender's RocketMQ: an ordinal of MQVersion
	Opaque  int32
	Flag    int32
	Remark  string
	Fields  []Field
	Body    []byte
}

// Get returns the value of a field, or "" when the field is missing. RocketMQ does not distinguish empty values from
// missing ones either.
func (f *Frame) Get(key string) string {
	for i := range f.Fields {
		if f.Fields[i].Key == key {
			return f.Fields[i].Value
		}
	}
	return ""
}

func (f *Frame) isReply() bool  { return f.Flag&flagReply != 0 }
func (f *Frame) isOneWay() bool { return f.Flag&flagOneWay != 0 }

// frameReader reads frames off one connection; it is used by one goroutine.
type frameReader struct {
	r      *bufio.Reader
	header []byte // reused
	word   [8]byte
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// next reads one frame. Later calls do not overwrite the result. After an error, the stream cannot be used any more;
// io.EOF means that it ended between two frames.
func (fr *frameReader) next() (Frame, error) {
	if _, err := io.ReadFull(fr.r, fr.word[:]); err != nil {
		return Frame{}, err
	}
	codec, headerLen, bodyLen, err := parsePrefix(fr.word)
	if err != nil {
		return Frame{}, err
	}
	if cap(fr.header) < headerLen {
		fr.header = make([]byte, headerLen)
	}
	header := fr.header[:headerLen]
	if _, err := io.ReadFull(fr.r, header); err != nil {
		return Frame{}, truncated(err)
	}
	frame, err := decodeHeader(codec, header)
	if err != nil || bodyLen == 0 {
		return frame, err
	}
	frame.Body = make([]byte, bodyLen)
	_, err = io.ReadFull(fr.r, frame.Body)
	return frame, truncated(err)
}

// parsePrefix reads the two length words, and checks them before anything is allocated.
func parsePrefix(word [8]byte) (codec Codec, headerLen, bodyLen int, err error) {
	length := binary.BigEndian.Uint32(word[:4])
	mark := binary.BigEndian.Uint32(word[4:])
	headerLen = int(mark & 0xffffff)
	if length < 4 || length > maxFrame {
		return 0, 0, 0, fmt.Errorf("%w: length %d", ErrFrame, length)
	}
	if headerLen > maxHeader || headerLen > int(length)-4 {
		return 0, 0, 0, fmt.Errorf("%w: header length %d in a frame of %d", ErrFrame, headerLen, length)
	}
	return Codec(mark >> 24), headerLen, int(length) - 4 - headerLen, nil
}

func decodeHeader(codec Codec, header []byte) (Frame, error) {
	switch codec {
	case CodecJSON:
		return decodeJSONHeader(header)
	case CodecBinary:
		return decodeBinaryHeader(header)
	}
	return Frame{}, fmt.Errorf("%w: header codec %d", ErrFrame, codec)
}

// truncated turns an io.EOF inside a frame into io.ErrUnexpectedEOF.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// request is one frame to be sent.
type request struct {
	op     string // for errors
	code   int
	header header
	body   []byte
	flag   int32
	opaque int32 // of a reply; requests get theirs from the connection
}

// header is a request's named values.
type header interface{ appendFields(w *fieldWriter) }

// appendFrame appends the whole frame to w's buffer, or nothing.
func appendFrame(w *fieldWriter, opaque int32, req *request) error {
	start := len(w.buf)
	w.buf = append(w.buf, 0, 0, 0, 0, 0, 0, 0, 0)
	if w.codec == CodecJSON {
		appendJSONHeader(w, opaque, req)
	} else {
		appendBinaryHeader(w, opaque, req)
	}
	headerLen := len(w.buf) - start - 8
	length := 4 + headerLen + len(req.body)
	if headerLen > maxHeader || length > maxFrame {
		w.buf = w.buf[:start]
		return fmt.Errorf("%w: frame of %d bytes, %d of them header", ErrInvalid, length, headerLen)
	}
	binary.BigEndian.PutUint32(w.buf[start:], uint32(length))
	binary.BigEndian.PutUint32(w.buf[start+4:], uint32(w.codec)<<24|uint32(headerLen))
	w.buf = append(w.buf, req.body...)
	return nil
}
