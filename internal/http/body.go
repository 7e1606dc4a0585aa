package http

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// maxBody bounds a request's body, in bytes. It leaves room beside the largest payload (txn.MaxMessageSize) for the
// arguments that are not sent to the broker.
const maxBody = 5 << 20

// firstRead bounds what is allocated on the word of a Content-Length alone.
const firstRead = 64 << 10

// maxBodies bounds what all requests take beyond the first read of their bodies, and beyond results of the default limit, in
// bytes. On its way to broker and database each body is copied, so that the process takes several times as much.
const maxBodies = 128 << 20

// bodies counts what is bounded by maxBodies.
type bodies struct {
	held   atomic.Int64
	within time.Duration // a body arrives
}

// registerBodies tells of them, and of the limit, as metrics.
func registerBodies(reg prometheus.Registerer, b *bodies) {
	limit := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "txsvc_bodies_bytes_limit", Help: "What the bodies of all requests may take beyond their first 64 KiB each; more are refused as overloaded.",
	})
	limit.Set(maxBodies)
	reg.MustRegister(limit, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "txsvc_bodies_bytes", Help: "What the bodies of all requests take beyond their first 64 KiB each.",
	}, func() float64 { return float64(b.held.Load()) }))
}

// bodyShare is what one request has of it.
type bodyShare struct {
	of   *bodies
	held int64
}

// grow tells whether the request may take so many bytes more.
func (s *bodyShare) grow(bytes int) bool {
	s.held += int64(bytes)
	return s.of.held.Add(int64(bytes)) <= maxBodies
}

// growByResult is grow for a result, or for the largest that there can be. Those within the default limit are counted by the number
// of requests only.
func (s *bodyShare) growByResult(bytes int) error {
	if bytes > txn.DefaultResultLimit && !s.grow(bytes) {
		return errBodies
	}
	return nil
}

// free gives everything back.
func (s *bodyShare) free() { s.of.held.Add(-s.held) }

// readBody returns the body of a JSON request. It is not reused: the payload is a part of it, and may outlive the
// request.
func readBody(w http.ResponseWriter, r *http.Request, share *bodyShare) ([]byte, error) {
	if err := checkMediaType(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBody {
		return nil, errBodyTooLarge
	}
	if rec, ok := w.(*recorder); ok {
		rec.reading = true
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(share.of.within)) // else a slow body would use up the time of the answer
	data, err := readAll(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength, share)
	_ = conn.SetReadDeadline(time.Time{}) // the client's hanging up is watched for from now on
	if errors.Is(err, errBodies) {
		return nil, errBodies
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, errBodyTooLarge
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, invalidBody("the body did not arrive in time", err)
	}
	if err != nil {
		return nil, invalidBody("the body could not be read to its end", err)
	}
	return data, nil
}

// What is read of a body that is not wanted, in bytes and time.
const (
	maxDiscarded   = 64 << 20
	discardTimeout = 30 * time.Second // as much as a body that is wanted has
)

// discardBody reads what a refused request still sends. A client that writes all of its body before it reads would else
// find its connection reset, and never see the answer. One that waits for leave to send (Expect: 100-continue) gets the
// answer instead. A body that is larger than all this is left alone: then the connection ends with the answer.
func discardBody(w http.ResponseWriter, r *http.Request) {
	rec, ok := w.(*recorder)
	waits := r.Header.Get("Expect") != "" && (!ok || !rec.reading)
	if r.Body == nil || r.Body == http.NoBody || waits || r.ContentLength > maxDiscarded {
		return
	}
	conn, end := http.NewResponseController(w), time.Now().Add(discardTimeout)
	_, _ = conn.SetReadDeadline(end), conn.SetWriteDeadline(end.Add(discardTimeout))
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded) // what is wrong with it now changes nothing
}

// errBodies is the answer when there is no room for one more large body.
var errBodies = &txn.Error{
	Code: txn.CodeOverloaded, Detail: "the bodies and results of the requests in flight are as large as this service takes on", RetryAfter: time.Second,
}

var errBodyTooLarge = txn.Errorf(txn.CodePayloadTooLarge, "the body is larger than %d bytes", maxBody)

func invalidBody(message string, cause error) error {
	err := txn.Invalid(txn.FieldError{Message: message})
	err.Cause = cause
	return err
}

// readAll is io.ReadAll with a hint, which is negative when the length is not known.
func readAll(body io.Reader, length int64, share *bodyShare) ([]byte, error) {
	if length < 0 || length > firstRead {
		length = firstRead
	}
	data := make([]byte, 0, length+1) // one more, to see the end without growing
	for {
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF { //nolint:errorlint // as io.ReadAll: io.Reader's contract
			return data, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the body: %w", err)
		}
		if len(data) < cap(data) {
			continue
		}
		before := cap(data)
		data = append(data, 0)[:len(data)]
		if !share.grow(cap(data) - before) {
			return nil, errBodies
		}
	}
}

// checkMediaType refuses what is not plain JSON in UTF-8 (RFC 8259, section 8.1).
func checkMediaType(header http.Header) error {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return txn.Errorf(txn.CodeUnsupportedMedia, "a body with a Content-Encoding is not accepted")
	}
	contentType := header.Get("Content-Type")
	if contentType == "application/json" {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	isJSON := media == "application/json" || strings.Contains(media, "/") && strings.HasSuffix(media, "+json")
	if err != nil || !isJSON {
		return txn.Errorf(txn.CodeUnsupportedMedia, "the Content-Type must be application/json")
	}
	if charset, given := parameters["charset"]; given && !strings.EqualFold(charset, "utf-8") {
		return txn.Errorf(txn.CodeUnsupportedMedia, "the charset must be utf-8")
	}
	return nil
}
