package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Timeouts of a connection, and the bound of a request's header. A body of maxBody arrives in time at 1.4 Mbit/s.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// NewServer returns a server for the handler. answerTimeout is the longest that a transaction may take; it starts when
// the request's header is read, so that the time to read the body is added to it. It is in ReadTimeout as well: that
// also ends the watch for the client's hanging up, and the request would look cancelled.
func NewServer(handler http.Handler, log *slog.Logger, answerTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout + answerTimeout,
		WriteTimeout:      readTimeout + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
}

// Stop says how a server ends. Both times are counted from the end of the context that it serves for.
type Stop struct {
	DrainDelay time.Duration // connections are still accepted, so that whoever sends requests here can notice and go elsewhere
	Timeout    time.Duration // the requests in flight are finished
}

// Serve serves until ctx ends. For stop.DrainDelay it goes on then, because those who send requests have to learn first
// that they should not: Config.Stopping is what tells them. Then it accepts nothing more, and waits for the requests in
// flight; those still running at stop.Timeout are cut off, and the error says so. The listener is closed in any case.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, stop Stop) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stop.Timeout)
	defer cancel()
	drained := time.NewTimer(stop.DrainDelay)
	defer drained.Stop()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-drained.C:
	}
	err := server.Shutdown(limit)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were still running %s after the stop: %w", stop.Timeout, err), server.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
