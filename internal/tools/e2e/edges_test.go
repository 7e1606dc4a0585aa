package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// oddIDs are ids with what clients, routers and proxies may read as something else in a path.
var oddIDs = []string{
	"a/b", "/", "//", "a//b", "a/", "/a", "a/../b", "../x", "x/..", "./x", "a/./b", "...", ".a", "a.", "..a", "-.", "%2e", "%2E%2E",
	"%2F", "%", "%%", "%25", "%zz", "a?b=c", "?", "#", "a#b", "a&b", "a;b", "a,b", "a:b", "http://x/y", "a\\b", "..\\x", "+", "a+b",
	"=", "*", "{id}", "[x]", "|", "^", "`", `"`, `"quoted"`, "'", "<x>", "@", "$", "~", "!", "redeliver", "a/redeliver",
}

// TestEveryIDCanBeFollowed: the Location of every id that is accepted leads to its transaction, for clients that normalize
// URLs each in their own way; an id of which that cannot be is refused.
func TestEveryIDCanBeFollowed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start().ready()
	var urls []string
	for i, id := range oddIDs {
		request := s.request("/v1/orders", order(id, fmt.Sprint("k", i)))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := read(response); err != nil || a.HTTPStatus != http.StatusCreated || a.ID != id {
			t.Fatalf("id %q: got %d %s (%v), want it committed", id, a.HTTPStatus, a.Raw, err)
		}
		location, err := response.Location() // resolved against the request's URL
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, location.String())
		if response, err = http.Get(location.String()); err != nil {
			t.Fatal(err)
		}
		if a, err := read(response); err != nil || a.HTTPStatus != http.StatusOK || a.ID != id {
			t.Errorf("net/http follows %s of id %q: got %d %s (%v)", location, id, a.HTTPStatus, a.Raw, err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "--globoff", "-w", "\n"}, urls...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(oddIDs) {
		t.Fatalf("curl printed %d answers, want %d:\n%s", len(lines), len(oddIDs), out)
	}
	for i, line := range lines {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.ID != oddIDs[i] || a.State != "committed" {
			t.Errorf("curl follows %s of id %q: got %s (%v)", urls[i], oddIDs[i], line, err)
		}
	}
	for _, id := range []string{".", ".."} {
		a := s.mustPost("/v1/orders", order(id, "k"), http.StatusBadRequest)
		if !strings.Contains(a.Raw, `"pointer":"/id"`) || !strings.Contains(a.Raw, "RFC 3986") {
			t.Errorf("id %q: got %s, want an error at /id that says why", id, a.Raw)
		}
		request := s.request("/v1/orders", order("", "k"))
		request.Header.Set("Idempotency-Key", id)
		if a, err := s.do(request); err != nil || a.HTTPStatus != http.StatusBadRequest {
			t.Errorf("Idempotency-Key: %s: got %d %s (%v), want 400", id, a.HTTPStatus, a.Raw, err)
		}
	}
	e.settle(recoverLimit)
}

// request returns a POST of JSON.
func (s *service) request(path, body string) *http.Request {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	return request
}

func (s *service) do(request *http.Request) (answer, error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	return read(response)
}

// TestEdges: what the real server does with headers and bodies.
func TestEdges(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.start("TXSVC_ALLOWED_HOSTS=api.example.com").ready()

	t.Run("a quoted key is the id in its quotes", func(t *testing.T) {
		for i, key := range []string{`"quoted-key"`, `quoted-key`} {
			request := s.request("/v1/orders", order("", "k"))
			request.Header.Set("Idempotency-Key", key)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			a, err := read(response)
			if err != nil || a.HTTPStatus != http.StatusCreated || a.ID != "quoted-key" || a.Replayed != (i > 0) {
				t.Errorf("key %s: got %d %s (%v), want quoted-key, replayed %t", key, a.HTTPStatus, a.Raw, err, i > 0)
			}
			if got, want := response.Header.Get("Idempotency-Replayed"), map[bool]string{true: "true"}[i > 0]; got != want {
				t.Errorf("key %s: got Idempotency-Replayed %q, want %q", key, got, want)
			}
		}
	})

	t.Run("a stored refusal is replayed as such", func(t *testing.T) {
		withReference := func(id string) string {
			return strings.Replace(order(id, "k"), `"currency"`, `"reference": "PO-1", "currency"`, 1)
		}
		s.mustPost("/v1/orders", withReference("first-of-its-reference"), http.StatusCreated)
		body := withReference("second-of-its-reference")
		for _, want := range []string{"", "true"} {
			response, err := http.DefaultClient.Do(s.request("/v1/orders", body))
			if err != nil {
				t.Fatal(err)
			}
			if a, err := read(response); err != nil || a.HTTPStatus != http.StatusUnprocessableEntity || a.Code != "rejected" {
				t.Fatalf("got %d %s (%v), want it rejected", a.HTTPStatus, a.Raw, err)
			}
			if got := response.Header.Get("Idempotency-Replayed"); got != want {
				t.Errorf("got Idempotency-Replayed %q, want %q", got, want)
			}
		}
	})

	t.Run("a foreign Host or Origin is refused", func(t *testing.T) {
		for _, tc := range []struct {
			host, origin string
			status       int
		}{
			{"evil.example", "", 403}, {"", "http://evil.example", 403}, {"", "null", 403},
			{"api.example.com", "", 201}, {"", "https://api.example.com", 201}, {"localhost", "http://localhost", 201},
		} {
			request := s.request("/v1/orders", order("", "k"))
			request.Host = tc.host
			if tc.origin != "" {
				request.Header.Set("Origin", tc.origin)
			}
			a, err := s.do(request)
			if err != nil || a.HTTPStatus != tc.status || tc.status == 403 && a.Code != "forbidden" {
				t.Errorf("Host %q, Origin %q: got %d %s (%v), want %d", tc.host, tc.origin, a.HTTPStatus, a.Raw, err, tc.status)
			}
		}
	})

	t.Run("a body over the limit is answered", func(t *testing.T) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		body, reader := order("large", strings.Repeat("x", 4<<20)), bufio.NewReader(conn)
		for _, text := range []string{body, order("small", "k")} { // on the same connection
			if _, err := fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
				t.Fatalf("writing: %v", err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("reading the answer: %v", err)
			}
			var a answer
			if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
				t.Fatal(err)
			}
			if large := len(text) > 1<<20; large != (response.StatusCode == http.StatusRequestEntityTooLarge && a.Code == "payload_too_large") || !large && response.StatusCode != http.StatusCreated {
				t.Errorf("%d bytes: got %d %s", len(text), response.StatusCode, a.Code)
			}
		}
	})
	e.settle(recoverLimit)
}

// TestOneRequestInOtherWords: the same JSON values are the same request, whoever wrote its row; other values are not.
func TestOneRequestInOtherWords(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  order.create:
    path: /v1/orders
    topic: %[1]s
    tag: created
    local: {handler: orders}
  arguments:
    topic: %[1]s
    local: {sql: "SELECT @selector_arg IS NULL AS selector, @local_arg IS NULL AS local"}
`, e.topic))
	s := e.start().ready()
	const first = `{"id": "o", "shard_key": "k", "payload": {"customer": "caf\u00e9", "currency": "EUR", "items": [{"sku": "tea", "quantity": 2, "amount_minor": 450}]}}`
	words := []string{
		first,
		`{"payload":{"items":[{"amount_minor":450,"quantity":2,"sku":"tea"}],"customer":"café","currency":"\u0045UR"},"shard_key":"k","id":"o"}`,
		strings.Replace(first, `{"id"`, `{"selector_arg": null, "local_arg": null, "tag": null, "keys": null, "properties": null, "id"`, 1),
		strings.Replace(first, `{"id"`, `{"tag": "created", "keys": [], "properties": {}, "id"`, 1),
	}
	results := make(chan string, 2*len(words))
	var all sync.WaitGroup
	for range 2 { // all at once, each twice: one of them is executed
		for _, body := range words {
			all.Go(func() {
				a, err := s.post("/v1/orders", body)
				if err != nil || a.HTTPStatus != http.StatusCreated {
					t.Errorf("got %d %s (%v), want 201", a.HTTPStatus, a.Raw, err)
				}
				results <- fmt.Sprint(a.Replayed, a.MessageID)
			})
		}
	}
	all.Wait()
	close(results)
	answers := make(map[string]int)
	for result := range results {
		answers[result]++
	}
	if len(answers) != 2 {
		t.Errorf("got answers %v, want one that was executed, and its replays", answers)
	}
	other := strings.Replace(first, "450", "450.0", 1)
	if a := s.mustPost("/v1/orders", other, http.StatusUnprocessableEntity); a.Code != "idempotency_mismatch" {
		t.Errorf("got code %s, want idempotency_mismatch: numbers are compared by their text", a.Code)
	}
	// Null and absent are one to the local transaction as well.
	for _, args := range []string{``, `"selector_arg": null, "local_arg": null, `} {
		a := s.mustPost("/v1/transactions", `{"kind": "arguments", "id": "a", `+args+`"shard_key": "k", "payload": 1}`, http.StatusCreated)
		if string(a.Result) != `{"selector":true,"local":true}` || a.Replayed != (args != "") {
			t.Errorf("with %q: got %s, want both NULL", args, a.Raw)
		}
	}
	a := s.mustPost("/v1/transactions", `{"kind": "arguments", "selector_arg": null, "local_arg": null, "shard_key": "k", "payload": 1}`, http.StatusCreated)
	if string(a.Result) != `{"selector":true,"local":true}` {
		t.Errorf("got %s, want both NULL", a.Raw)
	}
}
