package remoting

import (
	"encoding/binary"
	"fmt"
)

// binaryFixed is the length of the binary header's fixed part: code 2, language
// 1, version 2, opaque 4, flag 4.
const binaryFixed = 13

func appendBinaryHeader(w *fieldWriter, opaque int32, req *request) {
	w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(req.code))
	w.buf = append(w.buf, languageGo)
	w.buf = binary.BigEndian.AppendUint16(w.buf, protocolVersion)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(opaque))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(req.flag))
	w.buf = append(w.buf, 0, 0, 0, 0) // no remark
	mark := len(w.buf)
	w.buf = append(w.buf, 0, 0, 0, 0)
	if req.header != nil {
		req.header.appendFields(w)
	}
	binary.BigEndian.PutUint32(w.buf[mark:], uint32(len(w.buf)-mark-4))
}

// decodeBinaryHeader copies header once, into a string that all values share.
func decodeBinaryHeader(header []byte) (Frame, error) {
	if len(header) < binaryFixed {
		return Frame{}, fmt.Errorf("%w: binary header of %d bytes", ErrFrame, len(header))
	}
	frame := Frame{
		Codec:   CodecBinary,
		Code:    int(int16(binary.BigEndian.Uint16(header))),
		Version: int(int16(binary.BigEndian.Uint16(header[3:]))),
		Opaque:  int32(binary.BigEndian.Uint32(header[5:])),
		Flag:    int32(binary.BigEndian.Uint32(header[9:])),
	}
	in := binaryReader{text: string(header[binaryFixed:])}
	frame.Remark = in.text32()
	fields := binaryReader{text: in.text32()}
	for fields.text != "" && !fields.bad {
		if len(frame.Fields) == maxFields {
			return Frame{}, fmt.Errorf("%w: more than %d fields", ErrFrame, maxFields)
		}
		if frame.Fields == nil {
			frame.Fields = make([]Field, 0, 8)
		}
		frame.Fields = append(frame.Fields, Field{Key: fields.text16(), Value: fields.text32()})
	}
	if in.bad || fields.bad {
		return Frame{}, fmt.Errorf("%w: binary header cut short", ErrFrame)
	}
	return frame, nil
}

// binaryReader takes length-prefixed texts off the front of a text. Lengths are signed in RocketMQ, so it refuses
// negative ones like those that are too long.
type binaryReader struct {
	text string
	bad  bool
}

func (r *binaryReader) text16() string { return r.take(2) }
func (r *binaryReader) text32() string { return r.take(4) }

func (r *binaryReader) take(prefix int) string {
	if len(r.text) < prefix {
		r.bad, r.text = true, ""
		return ""
	}
	n := 0
	for i := range prefix {
		n = n<<8 | int(r.text[i])
	}
	if n > len(r.text)-prefix || n >= 1<<(8*prefix-1) {
		r.bad, r.text = true, ""
		return ""
	}
	value := r.text[prefix : prefix+n]
	r.text = r.text[prefix+n:]
	return value
}
