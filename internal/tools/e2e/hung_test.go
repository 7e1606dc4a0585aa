package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestHungTransactionsLeaveRoom: more local transactions than there are connections hang on one lock. What is known is
// still answered at once, and what was committed before is delivered.
func TestHungTransactionsLeaveRoom(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const before = 5
	e.dieCommitted(before)
	s := e.start().ready()
	release := e.hold("k")
	defer release()
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			a, err := s.post("/v1/transactions", slow(fmt.Sprint("hung-", i), "k"))
			if err != nil || a.HTTPStatus != http.StatusCreated && a.HTTPStatus != http.StatusServiceUnavailable {
				t.Errorf("got %d %s (%v), want 201 or 503", a.HTTPStatus, a.Raw, err)
			}
		})
	}
	await.Success(t, 15*time.Second, func() error {
		var waiting int
		err := e.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'txsvc' AND wait_event_type = 'Lock'`).Scan(&waiting)
		if got := s.metric(`txsvc_stage_seconds_count{kind="slow",stage="half"}`); err != nil || waiting < 28 || got < 60 {
			return fmt.Errorf("%d local transactions hang, %v half messages are stored (%v)", waiting, got, err)
		}
		return nil
	})
	if a, err := s.get("order-0"); err != nil || a.HTTPStatus != http.StatusOK {
		t.Errorf("GET: got %d %s (%v), want 200", a.HTTPStatus, a.Raw, err)
	}
	if a := s.mustPost("/v1/orders", order("order-0", "0"), http.StatusCreated); !a.Replayed {
		t.Error("the answer of before is not given again")
	}
	s.ready()
	if a := s.mustPost("/v1/orders", order("new", "x"), http.StatusServiceUnavailable); !strings.Contains(a.Detail, "connections") {
		t.Errorf("got %q, want it to say that connections are in use", a.Detail)
	}
	if got := e.settle(recoverLimit); got != before {
		t.Errorf("%d orders are committed, want %d", got, before)
	}
	release()
	wg.Wait()
}
