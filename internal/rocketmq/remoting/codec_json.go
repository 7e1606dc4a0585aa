package remoting

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"unicode/utf8"
)

func appendJSONHeader(dst []byte, opaque int32, req *request) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(req.code), 10)
	dst = append(dst, `,"language":"GO","version":`...)
	dst = strconv.AppendInt(dst, protocolVersion, 10)
	dst = append(dst, `,"opaque":`...)
	dst = strconv.AppendInt(dst, int64(opaque), 10)
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(req.flag), 10)
	dst = append(dst, `,"extFields":{`...)
	if req.header != nil {
		w := fieldWriter{buf: dst, codec: CodecJSON}
		req.header.appendFields(&w)
		dst = w.buf
	}
	return append(dst, '}', '}')
}

// jsonHeader is what Java's RemotingCommand serializes to.
type jsonHeader struct {
	Code      int                `json:"code"`
	Opaque    int32              `json:"opaque"`
	Flag      int32              `json:"flag"`
	Remark    string             `json:"remark"`
	ExtFields map[string]*string `json:"extFields"`
}

func decodeJSONHeader(header []byte) (Frame, error) {
	var h jsonHeader
	if err := json.Unmarshal(header, &h); err != nil {
		return Frame{}, fmt.Errorf("%w: JSON header: %w", ErrFrame, err)
	}
	if len(h.ExtFields) > maxFields {
		return Frame{}, fmt.Errorf("%w: more than %d fields", ErrFrame, maxFields)
	}
	frame := Frame{Codec: CodecJSON, Code: h.Code, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark}
	for key, value := range h.ExtFields {
		if value != nil {
			frame.Fields = append(frame.Fields, Field{Key: key, Value: *value})
		}
	}
	sort.Slice(frame.Fields, func(i, j int) bool { return frame.Fields[i].Key < frame.Fields[j].Key })
	return frame, nil
}

const hexDigits = "0123456789abcdef"

// appendJSONText appends s as the inside of a JSON string. Bytes that are not
// UTF-8 become the replacement character, as Java makes of them too.
func appendJSONText(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendJSONByte(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst
}

func appendJSONByte(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c < 0x20 || c == 0x7f:
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(dst, c)
}
