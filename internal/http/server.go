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

// Serve serves until ctx ends. Then it accepts nothing more, and waits for the requests in flight for at most
// shutdownTimeout; those still running after it are cut off, and the error says so. The listener is closed in any case.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, shutdownTimeout time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(limit)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were still running %s after the stop: %w", shutdownTimeout, err), server.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
