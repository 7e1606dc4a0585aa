package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

const (
	inFlight     = 25               // transactions at the point when the process dies
	recoverLimit = 25 * time.Second // from readiness after the restart, without any traffic
)

// TestKilledAt kills the process with SIGKILL when inFlight transactions stand at one point, restarts it, sends nothing,
// and counts what a consumer sees.
func TestKilledAt(t *testing.T) {
	native := transports[:1]
	for _, tc := range []struct {
		point      string
		committed  bool     // whether the transactions at the point are committed
		transports []string // the library sends half messages, and has no part in what comes later
	}{
		{"half-sent", false, transports},
		{"local", false, native},
		{"committed", true, transports},
		{"end-sent", true, native},
		{"end-answered", true, native},
	} {
		for _, transport := range tc.transports {
			t.Run(tc.point+"/"+transport, func(t *testing.T) {
				t.Parallel()
				e := newEnv(t)
				e.transport = transport
				s := e.start(fmt.Sprintf("TXSVC_FAILPOINT=%s@%d", tc.point, inFlight)).ready()
				var wg sync.WaitGroup
				for i := range inFlight {
					wg.Go(func() {
						if a, err := s.post("/v1/orders", order(fmt.Sprintf("order-%d", i), fmt.Sprint(i))); err == nil {
							t.Errorf("got an answer from a process that died before it: %s", a.Raw)
						}
					})
				}
				wg.Wait()
				s.awaitDeath()
				want := 0
				if tc.committed {
					want = inFlight
				}
				await.Success(t, 30*time.Second, func() error { // backends end when they notice that their client is gone
					if got := len(e.committed()); got != want {
						return fmt.Errorf("%d transactions are committed, want %d", got, want)
					}
					return nil
				})
				restarted := e.start().ready()
				if got := e.settle(recoverLimit); got != want {
					t.Errorf("got %d committed transactions, want %d", got, want)
				}
				// The same ids again: the truth for those that committed, a new attempt for those that did not.
				for i := range inFlight {
					wg.Go(func() {
						a := restarted.mustPost("/v1/orders", order(fmt.Sprintf("order-%d", i), fmt.Sprint(i)), http.StatusCreated)
						if a.Replayed != tc.committed || a.State != "committed" {
							t.Errorf("the id again: got %s, replayed %t, want committed, %t", a.State, a.Replayed, tc.committed)
						}
					})
				}
				wg.Wait()
				if got := e.settle(recoverLimit); got != inFlight {
					t.Errorf("got %d committed transactions at the end, want %d", got, inFlight)
				}
			})
		}
	}
}
