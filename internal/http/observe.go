package http

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/txsvc/txsvc/internal/txn"
)

// maxRequestID bounds a client's X-Request-Id, in bytes.
const maxRequestID = 128

// statusClientGone is the status in log and metrics of a request whose client hung up before the answer (nginx's 499), because
// the answer says nothing about the service then.
const statusClientGone = 499

// recorder collects the facts about a request for log and metrics.
type recorder struct {
	http.ResponseWriter
	requestID string
	reading   bool // the body has been asked for
	status    int  // 0 until the header is written
	err       error
}

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write notes the status 200, unless a header was written.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p) //nolint:wrapcheck // only passed on
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func newDuration(reg prometheus.Registerer) *prometheus.HistogramVec {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "http_request_duration_seconds",
		Help:    "Time from a request's header to the end of its answer, by method, route pattern and status (499: the client hung up).",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"method", "route", "status"})
	reg.MustRegister(duration)
	return duration
}

// observe wraps all routes. It gives each request its id, one log record and one observation, and turns a panic into a 500.
func (a *api) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w, requestID: requestID(r.Header)}
		w.Header().Set("X-Request-Id", rec.requestID)
		if a.stopping() {
			w.Header().Set("Connection", "close")
		}
		defer func() {
			aborted := rec.recovered(recover())
			a.record(r, rec, time.Since(start))
			if aborted != nil {
				panic(aborted)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// requestID returns the client's id of the request when it is safe to repeat, or a new one.
func requestID(header http.Header) string {
	if id := header.Get("X-Request-Id"); id != "" && len(id) <= maxRequestID && isPrintable(id) {
		return id
	}
	return rand.Text()
}

// recovered answers a panic, with its stack for the log. An answer that has begun is cut off, so that the client does not take it
// for complete: the caller has to panic with the result.
func (r *recorder) recovered(cause any) any {
	switch cause {
	case nil:
		return nil
	case http.ErrAbortHandler: //nolint:errorlint // net/http panics with this very value
		return cause
	}
	err := &txn.Error{Code: txn.CodeInternal, Detail: "panic", Cause: fmt.Errorf("%v\n%s", cause, debug.Stack())}
	if r.status != 0 {
		r.err, r.status = err, http.StatusInternalServerError
		return http.ErrAbortHandler
	}
	fail(r, err)
	return nil
}

// record logs and counts a request. Of the client's input only the request id is logged, because a path may hold a transaction's
// id, and errors may repeat input.
func (a *api) record(r *http.Request, rec *recorder, took time.Duration) {
	route, method, status := chi.RouteContext(r.Context()).RoutePattern(), methodLabel(r.Method), rec.status
	if route == "" {
		route = "unmatched"
	}
	if rec.err != nil && r.Context().Err() != nil {
		status = statusClientGone
	}
	a.duration.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
	level := levelOf(status)
	refused, ok := errors.AsType[*txn.Error](rec.err)
	unforeseen := ok && refused.Code == txn.CodeRejected && !refused.Final
	if unforeseen { // neither schema nor tables have foreseen this value: somebody should look
		level = slog.LevelWarn
	}
	if !a.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.String("request_id", rec.requestID),
	}
	if rec.err != nil {
		attrs = append(attrs, errorAttrs(rec)...)
	}
	if unforeseen {
		attrs = append(attrs, slog.Any("error", rec.err))
	}
	a.Log.LogAttrs(context.WithoutCancel(r.Context()), level, "request", attrs...)
}

// errorAttrs says why a request failed: the code, the rule that refused it, the number of wrong fields, and, where the client is
// not at fault, the cause.
func errorAttrs(rec *recorder) []slog.Attr {
	attrs := []slog.Attr{slog.String("code", string(txn.CodeOf(rec.err)))}
	if e, ok := errors.AsType[*txn.Error](rec.err); ok {
		if e.TransactionID != "" {
			attrs = append(attrs, slog.String("id", e.TransactionID))
		}
		if e.Rejection != nil {
			attrs = append(attrs, slog.String("sqlstate", e.Rejection.SQLState), slog.String("constraint", e.Rejection.Constraint))
		}
		if len(e.Fields) > 0 {
			attrs = append(attrs, slog.Int("field_errors", len(e.Fields)))
		}
	}
	if rec.status >= http.StatusInternalServerError {
		attrs = append(attrs, slog.Any("error", rec.err))
	}
	return attrs
}

// levelOf returns debug for requests that went well, so that the log stays quiet.
func levelOf(status int) slog.Level {
	switch {
	case status >= http.StatusInternalServerError:
		return slog.LevelError
	case status >= http.StatusBadRequest:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// methodLabel bounds the label's values, because clients can send any word.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	default:
		return "other"
	}
}
