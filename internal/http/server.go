package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// maxHeaderBytes bounds a request's header.
const maxHeaderBytes = 64 << 10

// NewServer returns a server for the handler. An answer has the time that the longest request of the kinds may take. The
// same time is in ReadTimeout, because its end also ends the watch for the client's hanging up, and the request would look
// cancelled.
func NewServer(handler http.Handler, log *slog.Logger, timing txn.Timing, kinds []*txn.Kind) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: timing.HeaderWithin,
		ReadTimeout:       timing.AnswerBy(kinds),
		WriteTimeout:      timing.AnswerBy(kinds),
		IdleTimeout:       timing.IdleWithin,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
}

// Stop says how a server ends. Both times are counted from the end of the context that it serves for.
type Stop struct {
	DrainDelay time.Duration // connections are still accepted, so that whoever sends requests here can notice and go elsewhere
	Timeout    time.Duration // the requests in flight are finished
}

// Serve serves until ctx ends, and for stop.DrainDelay longer, because clients have to learn first, through Config.Stopping, that
// they should go elsewhere. Then it accepts nothing more, and waits for the requests in flight. Requests that still run at
// stop.Timeout are cut off, and the error says so. The listener is closed in any case.
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
