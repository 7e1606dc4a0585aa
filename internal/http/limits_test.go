package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"
)

const limit = 5 << 20

// bodyOf returns a request body of exactly size bytes.
func bodyOf(size int) string {
	const head, tail = `{"shard_key":"acme","payload":"`, `"}`
	return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
}

func TestBodyLimit(t *testing.T) {
	for _, test := range []struct {
		size    int
		chunked bool
		status  int
	}{
		{limit, false, 201},
		{limit, true, 201},
		{limit + 1, false, 413},
		{limit + 1, true, 413},
		{4 * limit, true, 413},
	} {
		t.Run(fmt.Sprintf("%d chunked=%t", test.size, test.chunked), func(t *testing.T) {
			h := setup(t)
			server := httptest.NewServer(h.handler)
			defer server.Close()
			var body io.Reader = strings.NewReader(bodyOf(test.size))
			if test.chunked {
				body = struct{ io.Reader }{body} // a reader of no known length
			}
			response, err := server.Client().Post(server.URL+"/v1/orders", "application/json", body) //nolint:noctx // a test
			if err != nil {
				t.Fatalf("POST: %v", err)
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != test.status {
				t.Fatalf("got %d, want %d: %.300s", response.StatusCode, test.status, text)
			}
			if test.status == 413 && !strings.Contains(string(text), `"code":"payload_too_large"`) {
				t.Errorf("got %s, want code payload_too_large", text)
			}
		})
	}
}

// connect serves the API until the test ends, and returns a connection to it on which a test writes what no client would.
func (h *harness) connect(t *testing.T) net.Conn {
	t.Helper()
	server := httptest.NewServer(h.handler)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String()) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// TestDeclaredLengthIsEnough: a body that says that it is too large is answered before one byte of it has come.
func TestDeclaredLengthIsEnough(t *testing.T) {
	h := setup(t)
	conn := h.connect(t)
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", limit+1)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close {
		t.Errorf("got %d and close %t, want 413 and a closed connection", response.StatusCode, response.Close)
	}
}

// TestBodyThatEndsEarly: the client has gone, so only the log can tell.
func TestBodyThatEndsEarly(t *testing.T) {
	h := setup(t)
	conn := h.connect(t)
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	conn.Close()
	await.True(t, 10*time.Second, "a record with invalid_request", func() bool { return strings.Contains(h.log.String(), `"code":"invalid_request"`) })
	if len(h.requests) > 0 {
		t.Errorf("got %d requests in the flow, want none", len(h.requests))
	}
}

// TestManyLargeBodies: while large bodies are held, one more is read and thrown away, and refused; a small one is not, and
// there is room again afterwards.
func TestManyLargeBodies(t *testing.T) {
	h := setup(t)
	release := make(chan struct{})
	const requests = 28 // 140 MiB
	arrived := make(chan bool, requests)
	var refused atomic.Int32
	var wg sync.WaitGroup
	large := strings.Repeat("x", limit)
	for range requests {
		wg.Go(func() {
			r := newRequest("/v1/orders", "")
			r.ContentLength = -1
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(large), end(func() {
				arrived <- true
				<-release
			})))
			w := httptest.NewRecorder()
			h.handler.ServeHTTP(w, r)
			switch w.Code {
			case http.StatusBadRequest: // read to its end, where it turns out to be no JSON
			case http.StatusServiceUnavailable:
				refused.Add(1)
				if !strings.Contains(w.Body.String(), `"code":"overloaded"`) || w.Header().Get("Retry-After") == "" {
					t.Errorf("got %s, want code overloaded and a Retry-After", w.Body)
				}
			default:
				t.Errorf("got %d, want 400 or 503", w.Code)
			}
		})
	}
	for range requests {
		<-arrived
	}
	h.post("/v1/orders", bodyOf(100)).want(http.StatusCreated)
	close(release)
	wg.Wait()
	if got := refused.Load(); got == 0 || got > requests-15 {
		t.Errorf("got %d of %d large bodies refused, want some", got, requests)
	}
	h.post("/v1/orders", bodyOf(1<<20)).want(http.StatusCreated)
}

// end is a reader that does something before it says that it has ended.
type end func()

func (f end) Read([]byte) (int, error) { f(); return 0, io.EOF }

// TestRefusedBodyIsReadFirst: a client that writes its whole body before it reads sees the answer and no reset, whatever
// the body is refused for, and can use the connection again.
func TestRefusedBodyIsReadFirst(t *testing.T) {
	for _, test := range []struct {
		name, path, header string
		status             int
	}{
		{"too large", "/v1/orders", "Content-Type: application/json\r\nContent-Length: %d", 413},
		{"too large, chunked", "/v1/orders", "Content-Type: application/json\r\nTransfer-Encoding: chunked", 413},
		{"another type", "/v1/orders", "Content-Type: text/plain\r\nContent-Length: %d", 415},
		{"messages", "/v1/messages", "Content-Type: application/json\r\nContent-Length: %d", 413},
		{"preview", "/v1/routes/preview", "Content-Type: application/json\r\nContent-Length: %d", 413},
		{"no such path", "/v1/nothing", "Content-Length: %d", 404},
		{"no such method", "/v1/kinds", "Content-Length: %d", 405},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			conn := h.connect(t)
			body := bodyOf(2 * limit)
			header := test.header
			if strings.Contains(header, "%d") {
				header = fmt.Sprintf(header, len(body))
			} else {
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			reader := bufio.NewReader(conn)
			requests := []string{
				fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", test.path, header, body), "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
			}
			for i, want := range []int{test.status, http.StatusOK} {
				if _, err := io.WriteString(conn, requests[i]); err != nil {
					t.Fatalf("writing: %v", err)
				}
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("reading the answer: %v", err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode != want || response.Close {
					t.Fatalf("got %d and close %t, want %d and a connection that stays", response.StatusCode, response.Close, want)
				}
			}
		})
	}
}

// TestBodyWithoutEnd: not everything is read of what is refused.
func TestBodyWithoutEnd(t *testing.T) {
	h := setup(t)
	server := httptest.NewServer(h.handler)
	defer server.Close()
	response, err := server.Client().Post(server.URL+"/v1/orders", "application/json", io.LimitReader(zeros{}, 1<<40)) //nolint:noctx // a test
	// The connection may be closed while the client is writing.
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d, want 413", response.StatusCode)
		}
	}
	await.True(t, 10*time.Second, "a record with payload_too_large", func() bool { return strings.Contains(h.log.String(), `"code":"payload_too_large"`) })
}

// zeros is a body of digits.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat("0", len(p))), nil
}

// What requests hold is bounded by bytes: a kind whose results may be large is refused before anything is done, and a large
// result is not read out, while others take all there is.
func TestManyLargeResults(t *testing.T) {
	h := setup(t)
	large := strings.Repeat("x", 4<<20-2)
	h.flow.get = func(_ context.Context, id string) (*txn.Transaction, error) {
		tx := delivered(txn.Request{ID: id, Kind: "payment.capture", ShardKey: "acme"})
		if id == "large" {
			tx.Result = json.RawMessage(`"` + large + `"`)
		}
		return tx, nil
	}
	running, release, entered := make(chan struct{}), make(chan struct{}), sync.WaitGroup{}
	h.flow.submit = func(_ context.Context, r txn.Request) (*txn.Transaction, error) {
		if r.ShardKey == "waits" {
			running <- struct{}{}
			<-release
		}
		return delivered(r), nil
	}
	const all = 32 // of 4 MiB are 128 MiB
	body := func(kind, key string) string {
		return fmt.Sprintf(`{"kind":%q,"shard_key":%q,"payload":1}`, kind, key)
	}
	for range all {
		entered.Go(func() {
			w := httptest.NewRecorder()
			h.handler.ServeHTTP(w, newRequest("/v1/transactions", body("payment.capture", "waits")))
			if w.Code != http.StatusCreated {
				t.Errorf("got %d, want 201: %s", w.Code, w.Body)
			}
		})
		<-running
	}
	for _, refused := range []*answer{h.post("/v1/transactions", body("payment.capture", "acme")), h.get("/v1/transactions/large")} {
		refused.problem(http.StatusServiceUnavailable, "overloaded")
		wantHeader(t, refused, "Retry-After", "1")
	}
	h.post("/v1/transactions", body("order.create", "acme")).want(http.StatusCreated)
	h.get("/v1/transactions/small").want(http.StatusOK)
	close(release)
	entered.Wait()
	h.post("/v1/transactions", body("payment.capture", "acme")).want(http.StatusCreated)
	h.get("/v1/transactions/large").want(http.StatusOK)
}

// A result is answered however deep it is, and one that is too large to be read is told of.
func TestResultsOfEarlierVersions(t *testing.T) {
	h := setup(t)
	deep := strings.Repeat(`{"result":null,"a":[`, 20_000) + strings.Repeat(`]}`, 20_000)
	h.flow.get = func(_ context.Context, id string) (*txn.Transaction, error) {
		tx := delivered(txn.Request{ID: id, Kind: "order.create", ShardKey: `"result":null`})
		tx.Result = json.RawMessage(deep)
		if id == "large" {
			tx.Result, tx.ResultTooLarge = nil, 131_000_000
		}
		return tx, nil
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/transactions/deep", nil))
	body := w.Body.String()
	before, after, found := strings.Cut(body, deep)
	if w.Code != http.StatusOK || !found || !json.Valid([]byte(before+"null"+after)) || !strings.HasSuffix(before, `,"result":`) {
		t.Errorf("got %d %.600s … %s", w.Code, before, after)
	}
	if a := h.get("/v1/transactions/large").want(http.StatusOK); !strings.Contains(a.Body.String(),
		`"result":null,"error":{"code":"result_too_large","message":"the result has 131000000 bytes, more than can be answered","rejection":null}`) {
		t.Errorf("got %s", a.Body)
	}
}
