package remoting

import (
	"encoding/binary"
	"strconv"
)

// fieldWriter appends a header's named values in either codec, without building a map or strings for numbers first. It
// leaves empty values out, because the binary codec's reader turns them into null, which fails required fields and
// spoils signatures.
type fieldWriter struct {
	buf   []byte
	codec Codec
	more  bool // JSON: a comma comes first
}

func (w *fieldWriter) str(key, value string) {
	if value == "" {
		return
	}
	mark := w.open(key)
	w.text(value)
	w.close(mark)
}

func (w *fieldWriter) num(key string, value int64) {
	mark := w.open(key)
	w.buf = strconv.AppendInt(w.buf, value, 10)
	w.close(mark)
}

func (w *fieldWriter) flag(key string, value bool) {
	mark := w.open(key)
	w.buf = strconv.AppendBool(w.buf, value)
	w.close(mark)
}

// props writes properties in their wire form, lists one after the other.
func (w *fieldWriter) props(key string, lists ...Properties) {
	mark := w.open(key)
	for _, list := range lists {
		for i := range list {
			w.text(list[i].Name)
			w.text("\x01")
			w.text(list[i].Value)
			w.text("\x02")
		}
	}
	w.close(mark)
}

// open starts a value. Everything that is appended until close belongs to it.
func (w *fieldWriter) open(key string) (mark int) {
	if w.codec == CodecBinary {
		w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(key)))
		w.buf = append(w.buf, key...)
		mark = len(w.buf)
		w.buf = append(w.buf, 0, 0, 0, 0)
		return mark
	}
	if w.more {
		w.buf = append(w.buf, ',')
	}
	w.more = true
	w.buf = append(w.buf, '"')
	w.buf = appendJSONText(w.buf, key)
	w.buf = append(w.buf, `":"`...)
	return 0
}

func (w *fieldWriter) close(mark int) {
	if w.codec == CodecBinary {
		binary.BigEndian.PutUint32(w.buf[mark:], uint32(len(w.buf)-mark-4))
		return
	}
	w.buf = append(w.buf, '"')
}

func (w *fieldWriter) text(s string) {
	if w.codec == CodecBinary {
		w.buf = append(w.buf, s...)
		return
	}
	w.buf = appendJSONText(w.buf, s)
}

// fieldList is a header whose values are ready.
type fieldList []Field

func (l fieldList) appendFields(w *fieldWriter) {
	for i := range l {
		w.str(l[i].Key, l[i].Value)
	}
}

// collectFields returns a header's values as the peer will read them.
func collectFields(h header) fieldList {
	if h == nil {
		return nil
	}
	if list, ok := h.(fieldList); ok {
		return list
	}
	w := fieldWriter{codec: CodecBinary}
	h.appendFields(&w)
	in := binaryReader{text: string(w.buf)}
	var list fieldList
	for in.text != "" {
		list = append(list, Field{Key: in.text16(), Value: in.text32()})
	}
	return list
}
