package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// A connection whose heartbeats are not answered is replaced, because something on the way may lose everything that is
// sent.
func TestSilentConnectionIsReplaced(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := New(Config{Nameservers: []string{"unused"}, Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &link{
		name: "silent", addr: listener.Addr().String(), opts: client.opts, heartbeat: client.heartbeat,
		interval: time.Millisecond, patience: 10 * time.Millisecond, log: slog.New(slog.DiscardHandler),
		cancel: cancel, done: make(chan struct{}), settled: make(chan struct{}),
	}
	go l.run(ctx)
	defer l.stop()
	for range 2 {
		socket, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		in := newFrameReader(socket)
		for i := range missedHeartbeats {
			if frame, err := in.next(); err != nil || frame.Code != codeHeartbeat {
				t.Fatalf("heartbeat %d: got %+v, %v", i, frame, err)
			}
		}
	}
	<-l.settled
	await.Success(t, 30*time.Second, func() error {
		if _, err := l.conn(); !errors.Is(err, ErrNotConnected) || l.status().Err == nil {
			return fmt.Errorf("got %+v, want it given up", l.status())
		}
		return nil
	})
}

func TestQueryResultsAreFiltered(t *testing.T) {
	mine := Properties{{PropUniqKey, "mine"}}
	got := withUniqKey([]Message{
		{Topic: "t", Properties: Properties{{PropUniqKey, "other with the same hash"}}},
		{Topic: "t", Properties: mine, QueueOffset: 7}, {Topic: "u", Properties: mine},
	}, "t", "mine")
	if len(got) != 1 || got[0].QueueOffset != 7 {
		t.Errorf("got %+v, want the second only", got)
	}
}
