package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"time"
)

// client sends each request once. Only the load repeats requests, because each one is noted.
type client struct {
	http    *http.Client
	header  http.Header
	timeout time.Duration
	plan    *plan
}

func newClient(p *plan, header http.Header, timeout time.Duration, concurrency int) *client {
	idle := 4*concurrency + 16 // two replicas at once, and GETs
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost: idle, IdleConnTimeout: time.Minute, DisableCompression: true, TLSHandshakeTimeout: 5 * time.Second,
	}
	return &client{
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		plan: p, header: header, timeout: timeout,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// post sends the transaction's request, or another one with its id, and returns the answer. If hangUp is not negative,
// the client hangs up that long after it has sent everything.
func (c *client) post(ctx context.Context, to *target, t transaction, purpose Purpose, hangUp time.Duration) Answer {
	k := &c.plan.kinds[t.kind]
	path, withKind := "/v1/transactions", true
	turn := c.plan.turn(t, to)
	if k.Path != "" && turn&1 == 0 {
		path, withKind = k.Path, false
	}
	id := c.plan.id(t.n)
	text := c.plan.body(t, purpose == Other, withKind, turn&2 == 0)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url+path, bytes.NewReader(text))
	if err != nil {
		return Answer{Class: NotSent, Purpose: purpose, Detail: err.Error()}
	}
	request.GetBody = nil // net/http cannot send it once more by itself
	request.Header.Set("Content-Type", "application/json")
	if turn&2 != 0 {
		request.Header.Set("Idempotency-Key", id)
	}
	status, answered, a := c.exchange(request, to, purpose, hangUp)
	if status == 0 {
		return a
	}
	read := readAnswer(id, purpose, status, answered)
	read.Target, read.Latency = a.Target, a.Latency
	return read
}

// turn picks one of the equivalent forms of the request: at the kind's path or not, with the id in the body or in the
// header.
func (p *plan) turn(t transaction, to *target) uint64 { return t.dice>>8 + uint64(to.index) }

// get asks for the transaction.
func (c *client) get(ctx context.Context, to *target, id string) (Answer, []byte) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.url+"/v1/transactions/"+url.PathEscape(id), http.NoBody)
	if err != nil {
		return Answer{Class: NotSent, Purpose: Get, Detail: err.Error()}, nil
	}
	status, text, a := c.exchange(request, to, Get, -1)
	if status == 0 {
		return a, nil
	}
	read := readAnswer(id, Get, status, text)
	read.Target, read.Latency = a.Target, a.Latency
	return read, text
}

// maxAnswer bounds the bytes that are read of an answer.
const maxAnswer = 16 << 20

// exchange returns status and body of the answer. Without an answer, the status is 0 and the Answer has the reason.
func (c *client) exchange(request *http.Request, to *target, purpose Purpose, hangUp time.Duration) (int, []byte, Answer) {
	to.busy.Add(1)
	defer to.busy.Add(-1)
	ctx, cancel := context.WithTimeoutCause(request.Context(), c.timeout, errTimeout)
	defer cancel()
	if hangUp >= 0 {
		left, leave := context.WithCancelCause(ctx)
		defer leave(nil)
		ctx = httptrace.WithClientTrace(left, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			time.AfterFunc(hangUp, func() { leave(errHungUp) })
		}})
	}
	for name, values := range c.header {
		request.Header[name] = values
	}
	start := time.Now()
	a := Answer{Purpose: purpose, Target: uint8(to.index)}
	response, err := c.http.Do(request.WithContext(ctx)) //nolint:gosec // the operator names the service
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		_ = response.Body.Close()
	}
	a.Latency = time.Since(start)
	if err != nil {
		a.Class, a.Detail = classOfError(ctx, err), err.Error()
		return 0, nil, a
	}
	return response.StatusCode, text, a
}

var (
	errTimeout = errors.New("no answer in time")
	errHungUp  = errors.New("hung up, as planned")
)

// classOfError returns the class of a request without an answer. Only a connection that was never made has certainly
// carried nothing.
func classOfError(ctx context.Context, err error) Class {
	dialing, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && dialing.Op == "dial":
		return NotSent
	case errors.Is(context.Cause(ctx), errHungUp):
		return HungUp
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), errTimeout):
		return TimedOut
	default:
		return Broken
	}
}
