//go:build linux

package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func post(b []byte, n int) []byte {
	body := fmt.Sprintf(`{"n":%d}`, n)
	return fmt.Appendf(b, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestClosedLoopCountsAllAnswers(t *testing.T) {
	t.Parallel()
	var served, busy, most atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		body, _ := io.ReadAll(r.Body)
		if served.Add(1)%10 == 0 {
			http.Error(w, "every tenth", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	seen, failed := map[string]bool{}, 0
	r, err := Run(t.Context(), Options{Address: address, Connections: 4, Duration: 300 * time.Millisecond, Append: post, Answer: func(status int, body []byte) {
		if status == http.StatusCreated {
			seen[string(body)] = true
		} else {
			failed++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := int64(r.Sent), served.Load(); got != want {
		t.Errorf("sent: got %d requests, the server has served %d", got, want)
	}
	if got, want := r.Failed, int(served.Load()/10); got != want || failed != want {
		t.Errorf("failures: got %d, and %d in Answer, want %d", got, failed, want)
	}
	if got, want := len(r.Samples), r.Sent-r.Failed; got != want || len(seen) != want {
		t.Errorf("samples: got %d, and %d different answers, want %d", got, len(seen), want)
	}
	if got := most.Load(); got > 4 {
		t.Errorf("requests under way: got %d, want at most 4", got)
	}
	if len(r.Reasons) == 0 || !strings.Contains(r.Reasons[0], "500: every tenth") {
		t.Errorf("reasons: got %q", r.Reasons)
	}
}

// TestOpenLoopCountsFromWhenARequestWasDue: a server that stands still for half a second shows in the latency of all requests that were
// due meanwhile, although only one was under way.
func TestOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	const rate, still = 400, 500 * time.Millisecond
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) == 20 {
			<-time.After(still)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r, err := Run(t.Context(), Options{Address: address, Connections: 1, Rate: rate, Duration: time.Second, Append: post})
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent != rate {
		t.Errorf("sent: got %d requests in a second, want %d", r.Sent, rate)
	}
	late := 0
	for _, s := range r.Samples {
		if s.Latency > 100_000 {
			late++
		}
	}
	if want := int(rate * (still - 100*time.Millisecond) / time.Second); late < want {
		t.Errorf("answers later than 100 ms: got %d, want at least the %d that were due in the first 400 ms of the stop", late, want)
	}
}

func TestBrokenConnectionsAreFailuresAndMadeAnew(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%5 == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r, err := Run(t.Context(), Options{Address: address, Connections: 2, Duration: 200 * time.Millisecond, Append: post})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Failed, int(served.Load()/5); got != want || want == 0 {
		t.Errorf("failures: got %d, want %d, which is not 0", got, want)
	}
	if got, want := len(r.Samples), int(served.Load())-r.Failed; got != want {
		t.Errorf("samples: got %d, want %d", got, want)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) })
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Now()
	if _, err := Run(ctx, Options{Address: address, Connections: 1, Duration: time.Hour, Append: func(b []byte, n int) []byte {
		if n == 10 {
			cancel()
		}
		return post(b, n)
	}}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, body string
		status, size   int
		err            error
	}{
		{"whole", "HTTP/1.1 201 Created\r\nX: y\r\ncontent-length: 2\r\n\r\nok", "ok", 201, 51, nil},
		{"without a body", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", 204, 46, nil},
		{"half a header", "HTTP/1.1 201 Created\r\nContent-Le", "", 0, 0, nil},
		{"half a body", "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\no", "", 0, 0, nil},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "", 0, 0, errNoLength},
		{"something else", "SSH-2.0-OpenSSH\r\n\r\n", "", 0, 0, errNotHTTP},
	} {
		status, body, size, err := parse([]byte(tt.in))
		if status != tt.status || string(body) != tt.body || size != tt.size || err != tt.err {
			t.Errorf("%s: got %d %q %d %v, want %d %q %d %v", tt.name, status, body, size, err, tt.status, tt.body, tt.size, tt.err)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	r := &Result{Begin: time.Now()}
	for i := range 2000 {
		r.Samples = append(r.Samples, Sample{At: uint32(i) * 1000, Latency: uint32(2000 - i)})
	}
	if got := r.DueBetween(r.Begin, r.Begin.Add(time.Second)).Count; got != 999 {
		t.Errorf("due in the first second: got %d, want 999: without the first two, which were due before, and with one answer after it", got)
	}
	w := r.Between(r.Begin.Add(500*time.Millisecond), r.Begin.Add(1500*time.Millisecond))
	if w.Count != 1000 || w.PerSecond() != 1000 {
		t.Errorf("got %d answers, %g per second, want 1000 of each", w.Count, w.PerSecond())
	}
	for q, want := range map[float64]time.Duration{0: 501 * time.Microsecond, .5: 1001 * time.Microsecond, .99: 1491 * time.Microsecond, 1: 1500 * time.Microsecond} {
		if got := w.Quantile(q); got != want {
			t.Errorf("quantile %g: got %s, want %s", q, got, want)
		}
	}
}
