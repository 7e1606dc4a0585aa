package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// sighting is where a replica sent a key, some time between two moments.
type sighting struct {
	key          string
	queue        queue // without a broker: it was refused
	began, ended time.Time
}

// accepted: when an operator accepts the new queues, keys that stay go on all the time. Those that move are refused for a
// while, by all replicas: none sends a key to its new queue before the last has stopped sending it to the old one.
func (r *routes) accepted(t *testing.T, before map[string]queue) {
	t.Helper()
	if out := r.command(t, "route", "accept", "keepgrow", "--dry-run"); !strings.Contains(out, "before  broker-a:0-3, broker-b:0-3 (version 1)\nafter   broker-a:0-5, broker-b:0-5\n") ||
		!strings.Contains(out, "of kind keepgrow (hash, 10000 made-up keys)") {
		t.Errorf("--dry-run printed:\n%s", out)
	}
	watched := slices.Sorted(maps.Keys(before))[:20]
	stop, seen := make(chan struct{}), make(chan []sighting, len(r.replicas))
	for _, s := range r.replicas {
		go func() {
			var all []sighting
			for {
				for _, key := range watched {
					began := time.Now()
					a := s.send("keepgrow", key)
					all = append(all, sighting{key, a.Queue, began, time.Now()})
				}
				select {
				case <-stop:
					seen <- all
					return
				default:
				}
			}
		}()
	}
	start := time.Now()
	if out := r.command(t, "route", "accept", "keepgrow", "--pause", "10s"); !strings.Contains(out, "accepted as version 2; in use in 10s") {
		t.Errorf("it printed:\n%s", out)
	}
	since(t, start, "queues accepted and in use", func() error {
		for _, s := range r.replicas {
			if a := s.topic(t, "keepgrow").Accepted; a == nil || a.Version != 2 || a.Pause > 0 {
				return fmt.Errorf("version 2 is not in use yet: %+v", a)
			}
		}
		return nil
	})
	after := r.previews(t, r.replicas[0], "keepgrow", watched)
	await.Success(t, pickUp, func() error { // the last look at each is of the new list
		for _, key := range watched {
			if p := r.replicas[1].preview("keepgrow", key); p.Queue != after[key] {
				return fmt.Errorf("%s: replicas disagree", key)
			}
		}
		return nil
	})
	close(stop)
	var all []sighting
	for range r.replicas {
		all = append(all, <-seen...)
	}
	assertMovedOnce(t, all, before, after)
}

func assertMovedOnce(t *testing.T, all []sighting, before, after map[string]queue) {
	t.Helper()
	lastOld, firstNew, refused := make(map[string]time.Time), make(map[string]time.Time), 0
	for _, s := range all {
		from, to := before[s.key], after[s.key]
		switch {
		case from == to:
			if s.queue != from {
				t.Errorf("%s, which stays in %v, went to %v", s.key, from, s.queue)
			}
		case s.queue.Broker == "":
			refused++
		case s.queue == from:
			if s.began.After(lastOld[s.key]) {
				lastOld[s.key] = s.began
			}
		case s.queue == to:
			if first, ok := firstNew[s.key]; !ok || s.ended.Before(first) {
				firstNew[s.key] = s.ended
			}
		default:
			t.Errorf("%s went to %v, want %v or %v", s.key, s.queue, from, to)
		}
	}
	for key, first := range firstNew {
		if !lastOld[key].Before(first) {
			t.Errorf("%s went to its old queue %s after it had gone to its new one", key, lastOld[key].Sub(first))
		}
	}
	if refused == 0 || len(firstNew) == 0 {
		t.Errorf("%d requests were refused, %d keys moved, want some", refused, len(firstNew))
	}
	t.Logf("%d requests: %d keys moved, %d requests refused meanwhile", len(all), len(firstNew), refused)
}

// command runs txsvc with the environment of the services.
func (r *routes) command(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "TXSVC_DATABASE_URL="+r.databaseURL, "TXSVC_NAMESERVERS="+strings.Join(r.nameservers, ","), "TXSVC_CONFIG="+r.config)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("txsvc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
