package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
)

// TestSuspendedInCommit: a replica is stopped while its COMMIT is executed, for so long that another one delivers the message.
// When it goes on, it has given the reply up; its answer is the truth all the same: this request has committed.
func TestSuspendedInCommit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.config = e.writeConfig(fmt.Sprintf(`
kinds:
  slow:
    topic: %s
    timeout: 1s
    local:
      sql: SELECT pg_advisory_xact_lock(hashtext(@shard_key))
`, e.topic))
	stopped := e.start().ready()
	e.start().ready()
	release := e.hold("k")
	defer release()
	answered := make(chan answer, 1)
	go func() {
		a, err := stopped.post("/v1/transactions", slow("tx-1", "k"))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	await.Success(t, 10*time.Second, func() error {
		var waiting int
		err := e.db.QueryRow(context.Background(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
		if err != nil || waiting != 1 {
			return fmt.Errorf("%d local transactions wait (%v)", waiting, err)
		}
		return nil
	})
	stopped.signal(stopSignal)
	release()
	await.Success(t, 2*recoverLimit, func() error {
		var delivery string
		err := e.db.QueryRow(context.Background(), `SELECT delivery FROM txsvc.current WHERE id = 'tx-1'`).Scan(&delivery)
		if err != nil || delivery != "delivered" {
			return fmt.Errorf("the delivery is %q (%v)", delivery, err)
		}
		return nil
	})
	stopped.signal(contSignal)
	a := <-answered
	// Whether COMMIT's answer was waiting for it decides what it knows of the delivery.
	if a.HTTPStatus != http.StatusCreated || a.State != "committed" || a.Replayed {
		t.Errorf("got %d %s, want a committed transaction that is no replay", a.HTTPStatus, a.Raw)
	}
	if got := len(e.visible()["tx-1"]); got != 1 {
		t.Errorf("the message is visible %d times, want once", got)
	}
}
