package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// balancer sends clients to the first of its services that is ready, as a load balancer does by asking /readyz.
type balancer struct {
	services []*service
	to       atomic.Int32
	stop     chan struct{}
}

func (b *balancer) run() {
	for {
		response, err := http.Get(b.services[b.to.Load()].url + "/readyz")
		if err == nil {
			_ = response.Body.Close()
		}
		if err != nil || response.StatusCode != http.StatusOK {
			b.to.Store(1)
			return
		}
		select {
		case <-b.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// keepAlive is a client that keeps its connection for as long as it is allowed to, and retries nothing.
type keepAlive struct {
	conn   net.Conn
	reader *bufio.Reader
	to     int // the service that the connection goes to
}

// post posts one order and returns which service has taken it.
func (k *keepAlive) post(b *balancer, id string) (int, error) {
	if k.conn == nil {
		k.to = int(b.to.Load())
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.services[k.to].url, "http://"))
		if err != nil {
			return k.to, fmt.Errorf("dialing service %d: %w", k.to, err)
		}
		k.conn, k.reader = conn, bufio.NewReader(conn)
	}
	body := order(id, id)
	_, err := fmt.Fprintf(k.conn, "POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		return k.to, fmt.Errorf("writing to service %d: %w", k.to, err)
	}
	response, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return k.to, fmt.Errorf("reading from service %d: %w", k.to, err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated {
		return k.to, fmt.Errorf("service %d answered %d %s (%w)", k.to, response.StatusCode, text, err)
	}
	if response.Close {
		k.conn.Close()
		k.conn = nil
	}
	return k.to, nil
}

// TestDrain: clients that keep their connections, behind a balancer, notice nothing of a service that stops. And a second
// signal does not wait.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	b := &balancer{stop: make(chan struct{}), services: []*service{
		e.start("TXSVC_DRAIN_DELAY=5s").ready(), e.start("TXSVC_DRAIN_DELAY=60s", "TXSVC_SHUTDOWN_TIMEOUT=90s").ready(),
	}}
	var polling, clients sync.WaitGroup
	polling.Go(b.run)
	var taken [2]atomic.Int32
	const load = 16
	for i := range load {
		clients.Go(func() {
			k := &keepAlive{}
			for n, after := 0, 0; after < 3; n++ { // a few at the second service
				to, err := k.post(b, fmt.Sprintf("order-%d-%d", i, n))
				if err != nil {
					t.Error(err)
					return
				}
				taken[to].Add(1)
				after += to
			}
			if k.conn != nil {
				k.conn.Close()
			}
		})
	}
	first := b.services[0]
	await.Success(t, recoverLimit, func() error {
		if got := taken[0].Load(); got < 4*load {
			return fmt.Errorf("%d requests were answered", got)
		}
		return nil
	})
	first.signal(syscall.SIGTERM)
	clients.Wait()
	close(b.stop)
	polling.Wait()
	select {
	case <-first.done:
		if !first.cmd.ProcessState.Success() {
			t.Errorf("the service ended with %s", first.cmd.ProcessState)
		}
	case <-time.After(recoverLimit):
		t.Fatal("the service did not end on SIGTERM")
	}
	second := b.services[1]
	second.signal(syscall.SIGTERM)
	second.notReady(`"name":"service","ok":false,"detail":"is stopping"`)
	second.mustPost("/v1/orders", order("while-draining", "k"), http.StatusCreated)
	if got, want := e.settle(recoverLimit), int(taken[0].Load()+taken[1].Load())+1; got != want {
		t.Errorf("%d transactions are committed, want the %d that were answered", got, want)
	}
	second.signal(syscall.SIGTERM)
	select {
	case <-second.done:
	case <-time.After(30 * time.Second): // less than its drain delay
		t.Error("the service did not end at once on the second SIGTERM")
	}
}
