package verify

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// targets has the base URLs of the replicas, and picks one for each request.
type targets struct {
	share int // requests that one may have in flight before another is preferred
	next  atomic.Uint64

	mu   sync.Mutex
	list []*target // as they are now
	all  []*target // ever, by index
}

type target struct {
	index int
	url   string
	busy  atomic.Int64
}

// maxTargets is the number of replicas that an answer's index can name.
const maxTargets = 255

func newTargets(urls []string, concurrency int) (*targets, error) {
	t := &targets{share: concurrency}
	return t, t.set(urls)
}

// set replaces the URLs, for requests from now on.
func (t *targets) set(urls []string) error {
	if len(urls) == 0 {
		return fmt.Errorf("no base URL is given")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = nil
	for _, text := range urls {
		text = strings.TrimSuffix(text, "/")
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("base URL %q: http://host:port or https://host is needed", text)
		}
		known, err := t.known(text)
		if err != nil {
			return err
		}
		t.list = append(t.list, known)
	}
	return nil
}

func (t *targets) known(url string) (*target, error) {
	for _, known := range t.all {
		if known.url == url {
			return known, nil
		}
	}
	if len(t.all) == maxTargets {
		return nil, fmt.Errorf("more than %d base URLs", maxTargets)
	}
	t.all = append(t.all, &target{index: len(t.all), url: url})
	return t.all[len(t.all)-1], nil
}

func (t *targets) now() []*target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list
}

// pick takes turns. It passes over a replica that has more than its share of the requests in flight, because that one
// may be stopped, unless all have.
func (t *targets) pick() *target {
	list := t.now()
	first := int(t.next.Add(1) % uint64(len(list)))
	share := int64((t.share + len(list) - 1) / len(list))
	for i := range list {
		if candidate := list[(first+i)%len(list)]; candidate.busy.Load() < share {
			return candidate
		}
	}
	return list[first]
}
