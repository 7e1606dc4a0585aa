package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stream posts requests at a rate, whether or not earlier ones have been answered, as clients do who know nothing of each
// other.
type stream struct {
	t        *testing.T
	client   *http.Client
	replicas []*service
	// body of the request with that number.
	body func(n int) string

	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	waiting int
	answers []timedAnswer
}

// timedAnswer is what became of one request.
type timedAnswer struct {
	began  time.Time
	took   time.Duration
	status int // 0: no answer
	code   string
}

// startStream posts until end is called.
func startStream(t *testing.T, replicas []*service, perSecond int, body func(n int) string) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &stream{
		t: t, replicas: replicas, body: body, stop: stop,
		client: &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1024}},
	}
	s.all.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				s.all.Go(func() { s.post(n) })
			}
		}
	})
	t.Cleanup(func() { s.end() })
	return s
}

func (s *stream) post(n int) {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	a := timedAnswer{began: time.Now()}
	response, err := s.client.Post(s.replicas[n%len(s.replicas)].url+"/v1/transactions", "application/json", strings.NewReader(s.body(n)))
	if err == nil {
		var got answer
		if got, err = read(response); err == nil {
			a.status, a.code = got.HTTPStatus, got.Code
		}
	}
	if err != nil {
		s.t.Errorf("request %d: %v", n, err)
	}
	a.took = time.Since(a.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	s.answers = append(s.answers, a)
}

// inFlight is how many requests wait for their answer.
func (s *stream) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// end stops posting and waits for the last answers.
func (s *stream) end() {
	s.stop()
	s.all.Wait()
}

// between returns the answers to what was sent from one moment on and before another.
func (s *stream) between(from, to time.Time) answersSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list answersSeen
	for _, a := range s.answers {
		if !a.began.Before(from) && a.began.Before(to) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b timedAnswer) int { return cmp.Compare(a.took, b.took) })
	return list
}

// answersSeen are sorted by how long they took.
type answersSeen []timedAnswer

// count of those with the status.
func (l answersSeen) count(status int) (n int) {
	for _, a := range l {
		if a.status == status {
			n++
		}
	}
	return n
}

// quantile is how long the share q of them took at most.
func (l answersSeen) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(q*float64(len(l))), len(l)-1)].took
}

func (l answersSeen) String() string {
	kinds := make(map[string]int)
	for _, a := range l {
		kinds[strings.TrimSpace(fmt.Sprint(a.status, " ", a.code))]++
	}
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d answers %v, p50 %s, p99 %s, longest %s", len(l), kinds, round(l.quantile(0.5)), round(l.quantile(0.99)), round(l.quantile(1)))
}
