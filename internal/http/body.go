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

// maxBody is the largest body of a request, in bytes. Besides the largest payload (txn.MaxMessageSize) it leaves room for the
// arguments that are not sent to the broker.
const maxBody = 5 << 20

// firstRead is the most that is allocated because of a Content-Length alone, in bytes.
const firstRead = 64 << 10

// maxBodies is the most that all requests together may take beyond the first read of their bodies and beyond results of the
// default limit, in bytes. Each body is copied on its way to broker and database, so the process needs several times as much.
const maxBodies = 128 << 20

// bodies counts the bytes that maxBodies bounds.
type bodies struct {
	held   atomic.Int64
	within time.Duration // a body arrives
}

// registerBodies exports the bytes and their limit as metrics.
func registerBodies(reg prometheus.Registerer, b *bodies) {
	limit := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "txsvc_bodies_bytes_limit", Help: "What the bodies of all requests may take beyond their first 64 KiB each; more are refused as overloaded.",
	})
	limit.Set(maxBodies)
	reg.MustRegister(limit, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "txsvc_bodies_bytes", Help: "What the bodies of all requests take beyond their first 64 KiB each.",
	}, func() float64 { return float64(b.held.Load()) }))
}

// bodyShare is the share of one request.
type bodyShare struct {
	of   *bodies
	held int64
}

// grow takes so many bytes more, and returns false when there are not that many.
func (s *bodyShare) grow(bytes int) bool {
	s.held += int64(bytes)
	return s.of.held.Add(int64(bytes)) <= maxBodies
}

// growByResult is grow for a result, or for the largest possible one. Results within the default limit are bounded by the number
// of requests alone.
func (s *bodyShare) growByResult(bytes int) error {
	if bytes > txn.DefaultResultLimit && !s.grow(bytes) {
		return errBodies
	}
	return nil
}

// free returns the whole share.
func (s *bodyShare) free() { s.of.held.Add(-s.held) }

// readBody returns the body of a JSON request. Its memory is not reused, because the payload is a part of it and may outlive the
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

// maxDiscarded is how many bytes are read of a refused body.
const maxDiscarded = 64 << 20

// discardBody reads the rest of a refused request. Otherwise a client that writes its whole body before it reads would find its
// connection reset, and never see the answer. A client that waits for permission to send (Expect: 100-continue) gets the answer
// instead. Of a larger body the rest is not read: the connection ends with the answer. The rest
// has as much time as an accepted body.
func discardBody(w http.ResponseWriter, r *http.Request, within time.Duration) {
	rec, ok := w.(*recorder)
	waits := r.Header.Get("Expect") != "" && (!ok || !rec.reading)
	if r.Body == nil || r.Body == http.NoBody || waits || r.ContentLength > maxDiscarded {
		return
	}
	conn, end := http.NewResponseController(w), time.Now().Add(within)
	_, _ = conn.SetReadDeadline(end), conn.SetWriteDeadline(end.Add(within))
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded) // an error here changes nothing
}

// errBodies is the error when there is no room for another large body.
var errBodies = &txn.Error{
	Code: txn.CodeOverloaded, Detail: "the bodies and results of the requests in flight are as large as this service takes on", RetryAfter: txn.RetrySoon,
}

var errBodyTooLarge = txn.Errorf(txn.CodePayloadTooLarge, "the body is larger than %d bytes", maxBody)

func invalidBody(message string, cause error) error {
	err := txn.Invalid(txn.FieldError{Message: message})
	err.Cause = cause
	return err
}

// readAll is io.ReadAll with the expected length, which is negative when it is not known.
func readAll(body io.Reader, length int64, share *bodyShare) ([]byte, error) {
	if length < 0 || length > firstRead {
		length = firstRead
	}
	data := make([]byte, 0, length+1) // one more byte, to see the end without growing
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
