package http

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/txsvc/txsvc/internal/txn"
)

// Hosts are the names to which requests may be addressed. A page in somebody's browser can let its own name point at this machine
// (DNS rebinding), and has the same origin as the service then; but the browser sends that name as the Host. IP addresses and
// localhost cannot be made to point elsewhere. The zero value allows every name.
type Hosts struct {
	// Names are allowed besides localhost and IP addresses: host, for any port, or host:port. "*" allows every name.
	Names []string
	// Loopback: only the service's own machine reaches it, so only loopback addresses are its own.
	Loopback bool
}

// allowHosts answers 403 to requests for other names than the service's own, and to those from pages of other origins.
func (a *api) allowHosts(next http.Handler) http.Handler {
	if !a.Hosts.Loopback && len(a.Hosts.Names) == 0 || slices.Contains(a.Hosts.Names, "*") {
		return next
	}
	return a.handle(func(w http.ResponseWriter, r *http.Request) error {
		if r.Host != "" && !a.Hosts.allows(r.Host) { // HTTP/1.0 has no Host, and no browser speaks it
			return txn.Errorf(txn.CodeForbidden, "the header Host does not name this service; names beside localhost and IP addresses are configured as TXSVC_ALLOWED_HOSTS")
		}
		for _, origin := range r.Header["Origin"] {
			if !a.Hosts.allowsOrigin(origin, r.Host) {
				return txn.Errorf(txn.CodeForbidden, "the header Origin names another origin than the one that is asked; origins whose pages may ask are configured as TXSVC_ALLOWED_HOSTS")
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// allows reports whether the value of a header Host names the service.
func (h *Hosts) allows(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // no port
		name = strings.Trim(host, "[]")
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return !h.Loopback || ip.IsLoopback()
	}
	return strings.EqualFold(name, "localhost") || h.named(name, host)
}

// allowsOrigin reports whether pages of the origin may send requests: pages that this very host has served, and pages of the
// configured names.
func (h *Hosts) allowsOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" { // also "null", for a page without an origin
		return false
	}
	return strings.EqualFold(u.Host, host) || h.named(u.Hostname(), u.Host)
}

// named reports whether a name is configured, by itself or with its port.
func (h *Hosts) named(name, withPort string) bool {
	return slices.ContainsFunc(h.Names, func(allowed string) bool {
		return strings.EqualFold(allowed, name) || strings.EqualFold(allowed, withPort)
	})
}
