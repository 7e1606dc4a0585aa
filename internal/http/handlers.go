package http

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/txsvc/txsvc/internal/txn"
)

// handler answers a request, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

// handle adapts a handler. It is the only place where errors become answers.
func (a *api) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			discardBody(w, r, a.Timing.BodyWithin)
			fail(w, err)
		}
	}
}

// submit runs one transaction of the named kind, or of the kind that the body names when name is empty.
func (a *api) submit(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		share := &bodyShare{of: &a.bodies}
		defer share.free()
		data, err := readBody(w, r, share)
		if err != nil {
			return err
		}
		request, err := decodeRequest(data, name)
		if err != nil {
			return err
		}
		fromHeader, err := takeIdempotencyKey(&request, r.Header)
		if err != nil {
			return err
		}
		if err := share.growByResult(a.resultLimits[request.Kind]); err != nil { // after the transaction it is too late to refuse
			return err
		}
		request.Traceparent, request.Header = traceparent(r.Header), r.Header.Get
		t, err := a.Transactions.Submit(r.Context(), request)
		if err != nil && fromHeader {
			return blameHeader(err)
		}
		if err != nil {
			return err
		}
		writeSubmitted(w, t)
		return nil
	}
}

// takeIdempotencyKey takes the id from the header Idempotency-Key, and returns whether only the header gave it.
func takeIdempotencyKey(r *txn.Request, header http.Header) (bool, error) {
	keys, given := header["Idempotency-Key"]
	if !given {
		return false, nil
	}
	key, isKey := unquote(keys[0])
	switch {
	case len(keys) > 1:
		return false, txn.Invalid(txn.FieldError{Pointer: "/id", Message: "the header Idempotency-Key is given more than once"})
	case !isKey:
		return false, txn.Invalid(txn.FieldError{Pointer: "/id", Message: "the header Idempotency-Key begins with a quote and is not a string of RFC 9651, section 3.3.3"})
	case key == "":
		return false, txn.Invalid(txn.FieldError{Pointer: "/id", Message: "the header Idempotency-Key must not be empty"})
	case r.ID == "":
		r.ID = key
		return true, nil
	case r.ID != key:
		return false, txn.Invalid(txn.FieldError{Pointer: "/id", Message: "differs from the header Idempotency-Key"})
	default:
		return false, nil
	}
}

// unquote returns the text of a string in the form of structured header fields (RFC 9651, section 4.2.5), which the draft of the
// header Idempotency-Key demands. A value without a quote at its beginning is taken literally.
func unquote(value string) (text string, ok bool) {
	inner, quoted := strings.CutPrefix(value, `"`)
	if !quoted {
		return value, true
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		switch c := inner[i]; {
		case c == '"':
			return b.String(), i == len(inner)-1
		case c == '\\' && i+1 < len(inner) && (inner[i+1] == '"' || inner[i+1] == '\\'):
			i++
			b.WriteByte(inner[i])
		case c == '\\' || c < ' ' || c > '~':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// blameHeader adds to errors of the id that the header gave it. It copies the error, which may be shared.
func blameHeader(err error) error {
	e, ok := errors.AsType[*txn.Error](err)
	if !ok || e.Code != txn.CodeInvalidRequest {
		return err
	}
	fields := slices.Clone(e.Fields)
	for i := range fields {
		if fields[i].Pointer == "/id" {
			fields[i].Message = "the header Idempotency-Key " + fields[i].Message
		}
	}
	blamed := txn.Invalid(fields...)
	blamed.Cause = e.Cause
	return blamed
}

func (a *api) get(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	t, err := a.Transactions.Get(r.Context(), id)
	if err != nil {
		return err
	}
	share := &bodyShare{of: &a.bodies}
	defer share.free()
	if err := share.growByResult(len(t.Result)); err != nil {
		return err
	}
	writeTransaction(w, http.StatusOK, t)
	return nil
}

func (a *api) redeliver(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	t, err := a.Transactions.Redeliver(r.Context(), id)
	if err != nil {
		return err
	}
	writeTransaction(w, http.StatusAccepted, t)
	return nil
}

// pathID returns the id in the path.
func pathID(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if r.URL.RawPath != "" { // the router has matched the escaped form then
		var err error
		if id, err = url.PathUnescape(id); err != nil {
			return "", errNoSuchID
		}
	}
	if !isID(id) {
		return "", errNoSuchID
	}
	return id, nil
}

var errNoSuchID = txn.Errorf(txn.CodeNotFound, "no transaction has this id")

// isID reports whether a transaction can have the id. Other ids are not looked up, because PostgreSQL would refuse some of them.
func isID(id string) bool {
	return id != "" && len(id) <= txn.MaxIDLength && isPrintable(id)
}

// isPrintable reports whether s is printable ASCII without spaces.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func (a *api) listKinds(w http.ResponseWriter, _ *http.Request) error {
	write(w, http.StatusOK, typeJSON, a.kinds)
	return nil
}

func (a *api) health(w http.ResponseWriter, _ *http.Request) error {
	write(w, http.StatusOK, typeJSON, []byte(`{"status":"ok"}`))
	return nil
}

// readyJSON is the answer of /readyz, also with status 503. It is no problem document, because probes look for the dependency's
// name.
type readyJSON struct {
	Status string  `json:"status"`
	Checks []Check `json:"checks"`
}

// Serves reports whether requests can be served: everything that is not OK only degrades the service.
func Serves(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK && !c.Degrades })
}

func (a *api) ready(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), a.Timing.ReadyWithin)
	defer cancel()
	answer, status := readyJSON{Status: "ready", Checks: a.Readiness.Ready(ctx)}, http.StatusOK
	if a.stopping() {
		answer.Checks = append(answer.Checks, Check{Name: "service", Detail: "is stopping"})
	}
	switch {
	case !Serves(answer.Checks):
		answer.Status, status = "not_ready", http.StatusServiceUnavailable
	case slices.ContainsFunc(answer.Checks, func(c Check) bool { return !c.OK }):
		answer.Status = "degraded"
	}
	return writeJSON(w, status, typeJSON, answer)
}

// stopping reports whether Config.Stopping is closed.
func (a *api) stopping() bool {
	select {
	case <-a.Stopping:
		return true
	default:
		return false
	}
}

// metrics gathers before it answers, so that a collector's error becomes an error and not half a page.
func (a *api) metrics(w http.ResponseWriter, r *http.Request) error {
	families, err := a.Gatherer.Gather()
	if err != nil {
		return &txn.Error{Code: txn.CodeInternal, Detail: "gathering metrics", Cause: err}
	}
	gathered := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
	setCommon(w.Header())
	promhttp.HandlerFor(gathered, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) error {
	served, err := a.document()
	if err != nil {
		return err
	}
	write(w, http.StatusOK, typeYAML, served)
	return nil
}

func (a *api) notFound(_ http.ResponseWriter, _ *http.Request) error {
	return txn.Errorf(txn.CodeNotFound, "nothing is served at this path")
}

// methodNotAllowed also answers methods that the router does not know, at any path.
func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	methods := allowed(a.routes, path)
	if len(methods) == 0 {
		return a.notFound(w, r)
	}
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	return txn.Errorf(codeMethodNotAllowed, "this path answers %s", allow)
}
