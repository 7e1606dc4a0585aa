package http

import (
	"net/http"
	"strings"
)

// traceparentLength is the length of version 00: 2 + 32 + 16 + 2 hex digits and three dashes.
const traceparentLength = 55

// traceparent returns the request's trace context (W3C Trace Context, section 3.2), or "" when there is no valid one: the
// specification wants a broken one ignored. Of a later version only the part of version 00 is read.
func traceparent(header http.Header) string {
	values := header["Traceparent"]
	if len(values) != 1 || len(values[0]) < traceparentLength {
		return ""
	}
	value, rest := values[0][:traceparentLength], values[0][traceparentLength:]
	if !isTraceparent(value) || rest != "" && (rest[0] != '-' || value[:2] == "00") {
		return ""
	}
	if value[:2] == "00" {
		return value
	}
	return "00" + value[2:]
}

func isTraceparent(s string) bool {
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:]
	return s[2] == '-' && s[35] == '-' && s[52] == '-' &&
		isLowerHex(version) && version != "ff" &&
		isLowerHex(trace) && strings.Trim(trace, "0") != "" &&
		isLowerHex(parent) && strings.Trim(parent, "0") != "" &&
		isLowerHex(flags)
}

func isLowerHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}
