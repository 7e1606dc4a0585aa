package verify

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/txsvc/txsvc/internal/pause"
)

// suspectsMetric counts the copies that the service itself suspects.
const (
	suspectsMetric = "txsvc_duplicates_suspected_total"
	inFlightMetric = "txsvc_in_flight"
	scrapeEvery    = 2 * time.Second
	scrapeTimeout  = 3 * time.Second
)

// scraper follows a counter of all replicas over their restarts. The sum is a lower bound, because the scraper does not
// see what a replica counts between the last look and its death.
type scraper struct {
	client  *client
	targets *targets
	journal *journal

	mu       sync.Mutex
	last     map[string]float64 // by URL
	begun    bool
	reached  bool    // all replicas, the last time
	inFlight float64 // of all replicas, the last time
}

// run looks at intervals until ctx ends.
func (s *scraper) run(ctx context.Context) {
	for pause.For(ctx, scrapeEvery) {
		s.look(ctx)
	}
}

// look asks all replicas once. The first look only notes their present counts; a replica that comes later begins at 0.
func (s *scraper) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached, s.inFlight = true, 0
	for _, t := range s.targets.now() {
		text, err := s.fetch(ctx, t.url)
		if err != nil {
			s.reached = false
			continue
		}
		s.inFlight += metric(text, inFlightMetric)
		now := metric(text, suspectsMetric)
		before := s.last[t.url]
		if now < before {
			before = 0 // it was restarted
		}
		if s.begun && now > before {
			s.journal.suspected(uint64(now - before))
		}
		s.last[t.url] = now
	}
	s.begun = true
}

// idle reports whether all replicas answer and have nothing in flight.
func (s *scraper) idle() (idle, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight == 0, s.reached
}

func (s *scraper) fetch(ctx context.Context, base string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	return s.client.fetch(ctx, base+"/metrics")
}

// metric adds up all samples of a metric in the text format.
func metric(text []byte, name string) (sum float64) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		rest = rest[strings.LastIndexByte(rest, '}')+1:]
		if values := strings.Fields(rest); len(values) > 0 {
			v, _ := strconv.ParseFloat(values[0], 64)
			sum += v
		}
	}
	return sum
}

// fetch gets a document of the service.
func (c *client) fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, values := range c.header {
		request.Header[name] = values
	}
	response, err := c.http.Do(request) //nolint:gosec // the operator names the service
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &statusError{url, response.StatusCode}
	}
	return io.ReadAll(io.LimitReader(response.Body, maxAnswer))
}

type statusError struct {
	url    string
	status int
}

// Error names the URL and the status.
func (e *statusError) Error() string { return e.url + " answers " + strconv.Itoa(e.status) }
