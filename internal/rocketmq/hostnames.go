package rocketmq

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const lookupTimeout = 3 * time.Second

// hostNames looks up the addresses of name servers for rocketmq-client-go, which accepts no host names. The library asks at its
// start and every two minutes. Safe for concurrent use.
type hostNames struct {
	names []string // host:port

	mu      sync.Mutex
	lastErr error
}

// Resolve returns the IPv4 addresses of all name servers that can be looked up; an empty list changes nothing in the library.
func (h *hostNames) Resolve() []string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	var addresses []string
	var lastErr error
	for _, name := range h.names {
		found, err := lookUp(ctx, name)
		if err != nil {
			lastErr = fmt.Errorf("name server %s: %w", name, err)
		}
		addresses = append(addresses, found...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastErr = lastErr
	return addresses
}

func lookUp(ctx context.Context, name string) ([]string, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, ip := range ips {
		addresses = append(addresses, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return addresses, nil
}

// err returns why the last look-up of a name failed.
func (h *hostNames) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

// Description names the resolver in the library's logs.
func (h *hostNames) Description() string { return "host names " + strings.Join(h.names, ",") }
