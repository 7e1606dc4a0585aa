package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestClientHangsUp cuts 1,000 requests at random points, before, during and after they are worked on, while others are
// served, and then asks for the truth with the same ids.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	const cut, atOnce = 1000, 16
	e := newEnv(t)
	s := e.start().ready()
	stop := make(chan struct{})
	var load, cuts sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					s.mustPost("/v1/orders", order(fmt.Sprintf("whole-%d-%d", i, n), "load"), http.StatusCreated)
				}
			}
		})
	}
	next := make(chan int)
	for range atOnce {
		cuts.Go(func() {
			for i := range next {
				s.hangUp(order(cutID(i), "cut"))
			}
		})
	}
	for i := range cut {
		next <- i
	}
	close(next)
	cuts.Wait()
	close(stop)
	load.Wait()
	if got := e.settle(recoverLimit); got < cut/10 || t.Failed() {
		t.Logf("%d transactions committed", got)
	}
	before := e.committed()
	for i := range cut {
		_, was := before[cutID(i)]
		a := s.mustPost("/v1/orders", order(cutID(i), "cut"), http.StatusCreated)
		if a.State != "committed" || a.Replayed != was {
			t.Errorf("%s again: got %s, replayed %t; it had committed: %t", cutID(i), a.State, a.Replayed, was)
		}
	}
	e.settle(recoverLimit)
	s.stop()
}

func cutID(i int) string { return fmt.Sprintf("cut-%d", i) }

// hangUp sends a request and closes the connection at a random point: after a part of it, or some time after all of it;
// politely (FIN) or not (RST).
func (s *service) hangUp(body string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	if rand.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	request := fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: txsvc\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if rand.IntN(5) == 0 {
		request = request[:rand.IntN(len(request))]
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		s.t.Error(err)
		return
	}
	pause := time.Duration(rand.Int64N(int64(30 * time.Millisecond)))
	_ = conn.SetReadDeadline(time.Now().Add(pause))
	_, _ = conn.Read(make([]byte, 1)) // the answer may come before the pause ends
}
