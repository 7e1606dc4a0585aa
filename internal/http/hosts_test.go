package http_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	httpapi "github.com/txsvc/txsvc/internal/http"
)

// TestHosts: who may be asked as what, and by pages of which origin.
func TestHosts(t *testing.T) {
	loopback := httpapi.Hosts{Loopback: true}
	named := httpapi.Hosts{Names: []string{"api.example.com", "Admin.example.com:8443"}}
	both := httpapi.Hosts{Names: []string{"api.example.com", "localhost:3000"}, Loopback: true}
	for _, test := range []struct {
		name         string
		hosts        httpapi.Hosts
		host, origin string
		allowed      bool
	}{
		{"loopback", loopback, "127.0.0.1:8080", "", true},
		{"loopback by name", loopback, "localhost:8080", "", true},
		{"loopback by name in capitals", loopback, "LOCALHOST:8080", "", true},
		{"loopback of IPv6", loopback, "[::1]:8080", "", true},
		{"loopback without a port", loopback, "[::1]", "", true},
		{"another port, as through a tunnel", loopback, "localhost:9999", "", true},
		{"no host, as HTTP/1.0", loopback, "", "", true},
		{"own page", loopback, "localhost:8080", "http://localhost:8080", true},
		{"rebound name", loopback, "evil.example:8080", "", false},
		{"rebound name with its own origin", loopback, "evil.example:8080", "http://evil.example:8080", false},
		{"name that begins like it", loopback, "localhost.evil.example:8080", "", false},
		{"name that is like an address", loopback, "127.0.0.1.evil.example:8080", "", false},
		{"address elsewhere", loopback, "192.0.2.1:8080", "", false},
		{"foreign page", loopback, "localhost:8080", "http://evil.example", false},
		{"page of another port", loopback, "localhost:8080", "http://localhost:3000", false},
		{"page without an origin", loopback, "localhost:8080", "null", false},
		{"other name of the same", loopback, "127.0.0.1:8080", "http://localhost:8080", false},
		{"open", httpapi.Hosts{}, "evil.example", "http://other.example", true},
		{"configured", named, "api.example.com", "", true},
		{"configured for any port", named, "API.example.com:8443", "", true},
		{"configured with its port", named, "admin.example.com:8443", "", true},
		{"configured with another port", named, "admin.example.com", "", false},
		{"scraped by address", named, "10.1.2.3:8080", "", true},
		{"not configured", named, "example.com", "", false},
		{"page of a configured name", named, "10.1.2.3:8080", "https://api.example.com", true},
		{"page of another name", named, "api.example.com", "https://example.com", false},
		{"loopback and configured", both, "api.example.com", "", true},
		{"page of a configured port", both, "localhost:8080", "http://localhost:3000", true},
		{"page of another port than configured", both, "localhost:8080", "http://localhost:3001", false},
		{"everything", httpapi.Hosts{Names: []string{"*"}, Loopback: true}, "evil.example", "null", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := setup(t)
			config := h.config()
			config.Hosts, config.Registerer = test.hosts, prometheus.NewRegistry()
			h.handler = newHandler(t, config)
			for _, path := range []string{"/v1/orders", "/healthz", "/nothing"} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				want := map[string]int{"/v1/orders": 201, "/healthz": 200, "/nothing": 404}[path]
				if path == "/v1/orders" {
					r = newRequest(path, `{"shard_key":"acme","payload":{}}`)
				}
				r.Host = test.host
				if test.origin != "" {
					r.Header.Set("Origin", test.origin)
				}
				w := httptest.NewRecorder()
				h.handler.ServeHTTP(w, r)
				refused := w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), `"code":"forbidden"`)
				if test.allowed && w.Code != want || !test.allowed && !refused {
					t.Errorf("%s: got %d %s, want allowed %t", path, w.Code, w.Body, test.allowed)
				}
			}
			if !test.allowed && len(h.requests) > 0 {
				t.Error("the request has come to the flow")
			}
		})
	}
}
