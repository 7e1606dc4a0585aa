package http_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	httpapi "github.com/txsvc/txsvc/internal/http"
	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/txn"
)

// running is a server whose one request can be held.
type running struct {
	url     string
	stop    context.CancelFunc
	served  chan error
	entered chan struct{} // closed when the request is in the flow
	finish  chan struct{} // to be closed to let it go
}

func start(t *testing.T, shutdownTimeout time.Duration) *running {
	t.Helper()
	h := setup(t)
	r := &running{served: make(chan error, 1), entered: make(chan struct{}), finish: make(chan struct{})}
	accept := h.flow.submit
	h.flow.submit = func(ctx context.Context, request txn.Request) (*txn.Transaction, error) {
		close(r.entered)
		<-r.finish
		return accept(ctx, request)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	server := httpapi.NewServer(h.handler, slog.New(slog.DiscardHandler), txn.DefaultTiming(), nil)
	go func() { r.served <- httpapi.Serve(ctx, server, listener, httpapi.Stop{Timeout: shutdownTimeout}) }()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return r
}

// post sends the request; its status comes on the channel, 0 when there was no answer.
func (r *running) post(t *testing.T) <-chan int {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		body := strings.NewReader(`{"shard_key":"acme","payload":{}}`)
		response, err := http.Post(r.url+"/v1/orders", "application/json", body) //nolint:noctx // a test
		if err != nil {
			status <- 0
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		status <- response.StatusCode
	}()
	<-r.entered
	return status
}

func TestStopFinishesWhatIsInFlight(t *testing.T) {
	r := start(t, time.Minute)
	status := r.post(t)
	r.stop()
	await.True(t, 10*time.Second, "nothing more is accepted", func() bool {
		conn, err := net.Dial("tcp", r.url[len("http://"):]) //nolint:noctx // a test
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(r.finish)
	if got := <-status; got != http.StatusCreated {
		t.Errorf("got status %d for the request in flight, want 201", got)
	}
	if err := <-r.served; err != nil {
		t.Errorf("got %v from Serve, want nil", err)
	}
}

func TestStopDoesNotWaitForever(t *testing.T) {
	r := start(t, 10*time.Millisecond)
	status := r.post(t)
	r.stop()
	if err := <-r.served; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v from Serve, want it to tell of the deadline", err)
	}
	if got := <-status; got != 0 {
		t.Errorf("got status %d, want no answer", got)
	}
	close(r.finish)
}

func TestServeTellsWhyItEnded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	server := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), txn.DefaultTiming(), nil)
	if err := httpapi.Serve(t.Context(), server, listener, httpapi.Stop{Timeout: time.Second}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}

func TestServerIsBounded(t *testing.T) {
	timing, kind := txn.DefaultTiming(), &txn.Kind{Timeout: time.Minute}
	s := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), timing, []*txn.Kind{kind})
	longest := timing.Budget(kind).Total()
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= longest || s.WriteTimeout <= longest || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("got %+v, want every bound set, and those of the answer above the %s that a request may take", s, longest)
	}
}
