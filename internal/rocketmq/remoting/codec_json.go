package remoting

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func appendJSONHeader(w *fieldWriter, opaque int32, req *request) {
	w.buf = append(w.buf, `{"code":`...)
	w.buf = strconv.AppendInt(w.buf, int64(req.code), 10)
	w.buf = append(w.buf, `,"language":"GO","version":`...)
	w.buf = strconv.AppendInt(w.buf, protocolVersion, 10)
	w.buf = append(w.buf, `,"opaque":`...)
	w.buf = strconv.AppendInt(w.buf, int64(opaque), 10)
	w.buf = append(w.buf, `,"flag":`...)
	w.buf = strconv.AppendInt(w.buf, int64(req.flag), 10)
	w.buf = append(w.buf, `,"extFields":{`...)
	w.more = false
	if req.header != nil {
		req.header.appendFields(w)
	}
	w.buf = append(w.buf, '}', '}')
}

// decodeJSONHeader reads a header. It is on the fast path, because brokers answer in JSON whatever the request's codec
// was, unless they are started with -Drocketmq.serialize.type=ROCKETMQ. Headers that scanJSONHeader cannot read go to
// encoding/json.
func decodeJSONHeader(header []byte) (Frame, error) {
	if frame, ok := scanJSONHeader(string(header)); ok {
		return frame, nil
	}
	return unmarshalJSONHeader(header)
}

// unmarshalJSONHeader reads any JSON that Java's RemotingCommand can be encoded as.
func unmarshalJSONHeader(header []byte) (Frame, error) {
	var h struct {
		Code      int                `json:"code"`
		Version   int                `json:"version"`
		Opaque    int32              `json:"opaque"`
		Flag      int32              `json:"flag"`
		Remark    string             `json:"remark"`
		ExtFields map[string]*string `json:"extFields"`
	}
	if err := json.Unmarshal(header, &h); err != nil {
		return Frame{}, fmt.Errorf("%w: JSON header: %w", ErrFrame, err)
	}
	if len(h.ExtFields) > maxFields {
		return Frame{}, fmt.Errorf("%w: more than %d fields", ErrFrame, maxFields)
	}
	frame := Frame{Codec: CodecJSON, Code: h.Code, Version: h.Version, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark}
	for key, value := range h.ExtFields {
		if value != nil {
			frame.Fields = append(frame.Fields, Field{Key: key, Value: *value})
		}
	}
	slices.SortFunc(frame.Fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	return frame, nil
}

const hexDigits = "0123456789abcdef"

// appendJSONText appends s as the inside of a JSON string. Bytes that are not UTF-8 become the replacement character,
// as in Java.
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
