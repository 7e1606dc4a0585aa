package load

import (
	"bytes"
	"errors"
	"strconv"
)

var (
	errNotHTTP  = errors.New("the answer is not HTTP/1.1")
	errNoLength = errors.New("the answer has no Content-Length")
	endOfHeader = []byte("\r\n\r\n")
	endOfLine   = []byte("\r\n")
)

const lengthField = "content-length:"

// parse reads an answer. size is the number of its bytes, header and body, or 0 when it is not whole yet.
func parse(b []byte) (status int, body []byte, size int, err error) {
	end := bytes.Index(b, endOfHeader)
	if end < 0 {
		return 0, nil, 0, nil
	}
	if len(b) < len("HTTP/1.1 200") || string(b[:9]) != "HTTP/1.1 " {
		return 0, nil, 0, errNotHTTP
	}
	status, err = strconv.Atoi(string(b[9:12]))
	if err != nil {
		return 0, nil, 0, errNotHTTP
	}
	length, err := contentLength(b[:end+len(endOfLine)])
	if err != nil {
		return 0, nil, 0, err
	}
	size = end + len(endOfHeader) + length
	if len(b) < size {
		return 0, nil, 0, nil
	}
	return status, b[end+len(endOfHeader) : size], size, nil
}

func contentLength(header []byte) (int, error) {
	for len(header) > 0 {
		line, rest, _ := bytes.Cut(header, endOfLine)
		header = rest
		if len(line) > len(lengthField) && (line[0] == 'C' || line[0] == 'c') && bytes.EqualFold(line[:len(lengthField)], []byte(lengthField)) {
			return strconv.Atoi(string(bytes.TrimSpace(line[len(lengthField):])))
		}
	}
	return 0, errNoLength
}
